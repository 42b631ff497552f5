//! A mutex that sleeps on a futex: the guard of a [`Lock`](crate::Lock) of our own.
//!
//! | value | says |
//! |---|---|
//! | `FREE` | nobody holds it |
//! | `HELD` | somebody does, and nobody sleeps for it |
//! | `SLEPT_FOR` | somebody does, and others may sleep for it |
//!
//! Source: the third mutex of Drepper's "Futexes Are Tricky" (2004). It spins first: it is held for
//! about as long as a policy's step takes.

use crate::primitive::{AtomicU32, Ordering, const_but_for_loom, spin_loop};
use crate::{Guard, System};

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEPT_FOR: u32 = 2;

/// Looks before sleeping.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

#[derive(Debug)]
pub struct Mutex(AtomicU32);

impl Default for Mutex {
    fn default() -> Self {
        Mutex::new()
    }
}

impl Mutex {
    const_but_for_loom! {
        pub fn new() -> Mutex {
            Mutex(AtomicU32::new(FREE))
        }
    }

    /// Free it is, whoever held it.
    ///
    /// # Safety
    /// Nobody holds it who will let go of it (as in a forked child, whose other threads are gone).
    pub unsafe fn forget(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }

    /// The mutex, with what it needs to sleep.
    pub fn with<'m, S: System>(&'m self, system: &'m S) -> MutexWith<'m, S> {
        MutexWith { word: &self.0, system }
    }
}

#[derive(Debug)]
pub struct MutexWith<'m, S> {
    word: &'m AtomicU32,
    system: &'m S,
}

impl<S: System> MutexWith<'_, S> {
    fn take(&self) -> bool {
        // Acquire pairs with the Release in `unlock`.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl<S: System> Guard for MutexWith<'_, S> {
    unsafe fn lock(&self) {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == FREE && self.take() {
                return;
            }
            spin_loop();
        }
        // Acquire as in `take`. Whoever has slept for it may not be the last one to, and leaves it
        // marked.
        while self.word.swap(SLEPT_FOR, Ordering::Acquire) != FREE {
            self.system.futex_wait(self.word, SLEPT_FOR, None);
        }
    }

    unsafe fn try_lock(&self) -> bool {
        self.take()
    }

    unsafe fn unlock(&self) {
        // Release pairs with the Acquire in `take` and `lock`.
        if self.word.swap(FREE, Ordering::Release) == SLEPT_FOR {
            self.system.futex_wake(self.word, 1);
        }
    }
}
