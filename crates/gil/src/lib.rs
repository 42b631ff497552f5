//! Drives a policy on real threads.
//!
//! A [`Gate`] stands in front of one lock that somebody else keeps (CPython's GIL, the lab's) and
//! whose state is guarded by a mutex of theirs, here called *the guard*. The owner of the lock
//! tells the gate, always with the guard held, that a thread took or gave up the lock, and lets
//! waiters wait in it ([`wait`]). [`Lock`] is such a lock, for those who have none. While one thread has the lock to itself it need not ([`Usage`]).
//! The gate feeds the policy and does what it says: it wakes,
//! lets linger, keeps timers.
//!
//! Nothing here allocates, prints, or blocks but in [`wait`] and [`wait_for_switch`]. The
//! protocol between a waiter and those who wake it is in `parker.rs`, checked with loom.
#![cfg_attr(not(any(test, loom, feature = "os")), no_std)]

mod cell;
#[cfg(all(test, not(loom)))]
mod fake;
mod gate;
mod kept;
mod lock;
mod mutex;
#[cfg(all(feature = "os", not(loom)))]
pub mod os;
mod parker;
mod primitive;
mod seat;
mod steer;
mod usage;
mod wait;

pub use cell::GateCell;
pub use deconvoy_policy::home::{Keep, Linger, Place};
pub use gate::Gate;
pub use lock::{Held, Lock, Parts, Word};
pub use mutex::{Mutex, MutexWith};
pub use parker::Parker;
pub use primitive::{AtomicU32, AtomicU64};
pub use seat::{Outcome, Seat};
pub use steer::{Steer, UNTAKEN, Waiting, Whose};
pub use usage::{Own, Usage};
pub use wait::{wait, wait_for_switch};

use deconvoy_policy::{Nanos, WaiterId};

/// What a gate needs of the system.
pub trait System {
    /// A clock that never goes back.
    fn now(&self) -> Nanos;

    /// Sleeps while `word` is `expected`, at most until `deadline`. May return early for any
    /// reason. Keeps the caller's error number.
    fn futex_wait(&self, word: &AtomicU32, expected: u32, deadline: Option<Nanos>);

    /// Wakes up to `count` threads that sleep on `word`. Keeps the caller's error number.
    fn futex_wake(&self, word: &AtomicU32, count: u32);

    /// Lets other threads run on this core first.
    fn yield_now(&self) {}

    /// The core that the calling thread runs on, if that can be told.
    fn core(&self) -> Option<u32> {
        None
    }

    /// What a thread has used of a processor, if that can be told.
    fn used_by(&self, _who: WaiterId) -> Option<Nanos> {
        None
    }

    /// The cores that the calling thread may run on, if that can be told.
    fn allowed(&self) -> Option<Cores> {
        None
    }

    /// Lets the calling thread run on these cores only. Whether it does.
    fn allow(&self, _cores: &Cores) -> bool {
        false
    }
}

/// A set of cores, a bit each.
pub type Cores = [u64; 16];

/// A mutex that the calling thread holds and that a wait lets go of.
pub trait Guard {
    /// # Safety
    /// The calling thread does not hold the mutex.
    unsafe fn lock(&self);

    /// # Safety
    /// The calling thread does not hold the mutex.
    unsafe fn try_lock(&self) -> bool;

    /// # Safety
    /// The calling thread holds the mutex.
    unsafe fn unlock(&self);
}

/// The lock itself, as far as a gate changes it: closed while it is kept for a waiter, so that
/// others who come find it held. Called with the guard held, and only while nobody has the lock.
pub trait Latch {
    fn close(&self);
    fn open(&self);
}
