//! The one field of CPython's that is written.

use core::sync::atomic::{AtomicU32, Ordering};

use deconvoy_gil::Latch;

/// CPython's `locked`, which says whether somebody has the lock. It is closed only between a
/// release and the moment when the waiter that it is kept for takes it. Nothing but `take_gil`
/// acts on it then: no thread holds the lock, and a drop request, which would reach for the last
/// holder, is not made (`Outcome::Ask` says that there is a holder).
pub struct Locked(pub *const AtomicU32);

// SAFETY: an atomic at an address that stays valid while calls on the lock are made.
unsafe impl Send for Locked {}

impl Locked {
    fn set(&self, value: u32) {
        // SAFETY: the field of a verified lock, an aligned `int` that CPython itself reads and
        // writes as an atomic; the mutex that guards it is held.
        unsafe { &*self.0 }.store(value, Ordering::Relaxed);
    }
}

impl Latch for Locked {
    fn close(&self) {
        self.set(1);
    }

    fn open(&self) {
        self.set(0);
    }
}
