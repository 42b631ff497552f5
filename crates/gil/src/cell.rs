//! What the threads at a gate share: the gate, which the guard guards, and what is read without it.

use core::cell::UnsafeCell;

use deconvoy_policy::home::{Keep, Next};
use deconvoy_policy::{Nanos, Observer};

use crate::gate::Gate;
use crate::parker::Parker;
use crate::primitive::{AtomicU32, Ordering};
use crate::seat::Seat;
use crate::{Latch, System};

/// A gate, shared between threads; what is inside is guarded by the lock owner's mutex.
pub struct GateCell<'a, O, L> {
    gate: UnsafeCell<Gate<'a, O, L>>,
    pub(crate) parkers: &'a [Parker],
    pub(crate) forces_switch: bool,
    /// Counts acquisitions; those who were forced to let another in sleep on it.
    pub(crate) taken: AtomicU32,
    /// How many sleep on `taken` and are to be woken.
    pub(crate) forced: AtomicU32,
    /// Where the last holder is kept if it sleeps: a packed [`Keep`]. Written with the guard held,
    /// by the one who gives the lock up; it reads its own while nobody can have taken the lock.
    last: AtomicU32,
    /// As a number, who was granted the lock then; like `last`.
    next: AtomicU32,
}

// SAFETY:
// - `gate` is reached only through `GateCell::gate`, whose contract is that the guard is held,
//   so one thread at a time has it;
// - everything else is atomic or read-only.
unsafe impl<O: Send, L: Send> Sync for GateCell<'_, O, L> {}

impl<'a, O: Observer, L: Latch> GateCell<'a, O, L> {
    pub fn new(gate: Gate<'a, O, L>) -> GateCell<'a, O, L> {
        GateCell {
            parkers: gate.parkers,
            forces_switch: gate.forces_switch(),
            gate: UnsafeCell::new(gate),
            taken: AtomicU32::new(0),
            forced: AtomicU32::new(0),
            last: AtomicU32::new(0),
            next: AtomicU32::new(Next::Sleeps as u32),
        }
    }

    /// The calling thread has given the lock up.
    ///
    /// # Safety
    /// As for [`GateCell::gate`].
    pub unsafe fn released(&self, system: &impl System, now: Nanos, seat: Seat) {
        // SAFETY: as the caller says; the reference ends with the block.
        let (keep, next) = unsafe {
            let gate = self.gate();
            gate.released(system, now, seat);
            (gate.keep_of_last(), gate.next())
        };
        self.last.store(keep.pack(), Ordering::Relaxed);
        self.next.store(next as u32, Ordering::Relaxed);
    }

    /// Where the calling thread, which has just given the lock up, is kept if it sleeps, and who
    /// gets the lock.
    pub(crate) fn after_release(&self) -> (Keep, Next) {
        let next = Next::unpack(self.next.load(Ordering::Relaxed));
        (Keep::unpack(self.last.load(Ordering::Relaxed)), next)
    }

    /// # Safety
    /// The guard is held, and stays so while the result is used; no other result of this is.
    #[allow(clippy::mut_from_ref, reason = "the guard makes it exclusive")]
    pub unsafe fn gate(&self) -> &mut Gate<'a, O, L> {
        // SAFETY: the caller holds the guard and no other reference, see above.
        unsafe { &mut *self.gate.get() }
    }

    /// A thread has taken the lock, and the mutex of the forced switch is held beside the guard.
    /// Lets those go on who were forced to give it up.
    pub fn announce_taken(&self, system: &impl System) {
        // Both sides change both words, so one of them comes second at `forced`: this sees the
        // sleeper counted, or the sleeper sees the count go up before it sleeps.
        self.taken.fetch_add(1, Ordering::AcqRel);
        if self.forced.fetch_add(0, Ordering::AcqRel) > 0 {
            system.futex_wake(&self.taken, u32::MAX >> 1);
        }
    }
}
