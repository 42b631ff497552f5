//! Finds CPython's locks: which condition variables belong to one.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::layout::{self, LONGEST_INTERVAL_US};
use crate::locks::{Lock, Part, find};
use crate::sys::{Timespec, peek};
use crate::{image, loader, peers, real, ruby};

/// The condition variables that were initialised last: CPython does those of a lock one after the
/// other.
static RECENT: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static RECENT_NEXT: AtomicUsize = AtomicUsize::new(0);

/// Whether this process is a CPython that we know: 3.8 or later.
fn is_known_python() -> bool {
    static ANSWER: AtomicU32 = AtomicU32::new(0);
    if ANSWER.load(Ordering::Relaxed) == 0 {
        let known = !loader::symbol(c"_PyRuntime").is_null()
            && !loader::symbol(c"PyConfig_InitPythonConfig").is_null()
            && real::complete();
        if !known {
            // Asked again next time: the interpreter may be loaded later.
            return false;
        }
        ANSWER.store(1, Ordering::Relaxed);
    }
    true
}

/// There is a lock, and an interpreter whose it is.
fn found() {
    image::find();
    peers::begin();
}

/// Notes that a condition variable is about to be initialised, and finds a lock when it is the
/// second of one.
pub fn cond_initialised(address: usize) {
    forget(address);
    let first = address.wrapping_sub(layout::SWITCH_COND);
    let is_second = RECENT.iter().any(|recent| recent.load(Ordering::Relaxed) == first);
    if is_second && is_known_python() && looks_like_one(first) {
        Lock::make(first);
        found();
    }
    let before = address.wrapping_sub(layout::COND_BYTES);
    let is_behind = RECENT.iter().any(|recent| recent.load(Ordering::Relaxed) == before);
    ruby::queue::cond_initialised(address, is_behind);
    let next = RECENT_NEXT.fetch_add(1, Ordering::Relaxed) % RECENT.len();
    if let Some(place) = RECENT.get(next) {
        place.store(address, Ordering::Relaxed);
    }
}

/// A condition variable goes away.
pub fn cond_destroyed(address: usize) {
    for recent in &RECENT {
        // An address that is used again must not pair with what is gone.
        let _ = recent.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    if let Some(Part::Cond(lock) | Part::SwitchCond(lock)) = find(address) {
        lock.end(true);
    }
}

/// What was at this address is something else now.
fn forget(address: usize) {
    if let Some(Part::Cond(lock) | Part::SwitchCond(lock)) = find(address) {
        lock.end(false);
    }
}

/// Whether the memory around a condition variable could be a lock of CPython's.
fn looks_like_one(cond: usize) -> bool {
    // interval, last holder, locked, switches
    let Some([interval, _, _, switches]) = peek::<4>(cond.wrapping_sub(layout::INTERVAL)) else {
        return false;
    };
    // 0 is what CPython keeps for an interval below 1 us, and reads as 1.
    interval <= LONGEST_INTERVAL_US && switches < 1 << 48
}

/// Finds a lock at its first contended wait, if its making was missed. The deadline gives it
/// away: one switch interval from now.
pub fn discover(cond: usize, mutex: usize, deadline: &Timespec) -> Option<&'static Lock> {
    if cond.wrapping_add(layout::MUTEX) != mutex || !is_known_python() || !looks_like_one(cond) {
        return None;
    }
    let lock = Lock::make(cond)?;
    if lock.is_what_it_seems(mutex, deadline) {
        found();
        return Some(lock);
    }
    lock.forget();
    None
}
