//! A thread that waits until it is told, or until a time has come, or a signal has.
//!
//! `std::thread::park` goes on waiting after a signal; a thread of Python's that waits has to return to
//! run its handlers (Ctrl-C). So this is a futex of our own.

use std::time::Instant;

use crate::primitive::{AtomicU32, Ordering};

const EMPTY: u32 = 0;
const TOLD: u32 = 1;

/// One thread waits here at a time; any thread may tell it.
#[derive(Debug)]
pub struct Parker {
    /// | value | means |
    /// |---|---|
    /// | `EMPTY` | nobody was told anything; a thread may be waiting |
    /// | `TOLD` | whoever waits, or comes to wait, is to go on |
    state: AtomicU32,
}

/// Why a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    Told,
    TimedOut,
    /// By a signal, or by nothing: the caller looks, and waits again.
    Interrupted,
}

impl Default for Parker {
    fn default() -> Parker {
        Parker { state: AtomicU32::new(EMPTY) }
    }
}

impl Parker {
    /// Waits until told, at most until `deadline`.
    pub fn park(&self, deadline: Option<Instant>) -> Parked {
        if self.was_told() {
            return Parked::Told;
        }
        let left = match deadline {
            None => None,
            Some(at) => match at.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => Some(left),
                _ => return Parked::TimedOut,
            },
        };
        futex::wait(&self.state, EMPTY, left);
        if self.was_told() { Parked::Told } else { Parked::Interrupted }
    }

    /// Whoever waits here goes on; if nobody does, whoever comes next.
    pub fn tell(&self) {
        // Release: what was done before is seen by whoever goes on; the partner is in `was_told`.
        if self.state.swap(TOLD, Ordering::Release) == EMPTY {
            futex::wake(&self.state);
        }
    }

    /// Takes back what was told and not yet seen.
    pub fn was_told(&self) -> bool {
        // Acquire: the partner of the Release in `tell`.
        self.state.swap(EMPTY, Ordering::Acquire) == TOLD
    }
}

#[cfg(not(loom))]
mod futex {
    use std::time::Duration;

    use super::AtomicU32;

    /// Sleeps while the word has this value: until woken, for so long, or until a signal.
    pub fn wait(word: &AtomicU32, value: u32, left: Option<Duration>) {
        let left = left.map(|left| libc::timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let left = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the time outlive the call, and the kernel writes to neither.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, value, left) };
    }

    pub fn wake(word: &AtomicU32) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: only the word's address is used.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, 1) };
    }
}

#[cfg(loom)]
mod futex {
    use std::time::Duration;

    use super::AtomicU32;
    use crate::primitive::Ordering;

    /// As a futex that wakes up for no reason all the time, which it is allowed to.
    pub fn wait(word: &AtomicU32, value: u32, _left: Option<Duration>) {
        if word.load(Ordering::Relaxed) == value {
            loom::thread::yield_now();
        }
    }

    pub fn wake(_word: &AtomicU32) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_told_before_is_not_lost() {
        let parker = Parker::default();
        parker.tell();
        assert_eq!(parker.park(None), Parked::Told);
        let soon = Instant::now() + Duration::from_millis(1);
        while parker.park(Some(soon)) != Parked::TimedOut {}
        assert!(Instant::now() >= soon);
    }

    #[test]
    fn a_thread_that_waits_is_told() {
        let parker = Parker::default();
        std::thread::scope(|scope| {
            scope.spawn(|| while parker.park(None) != Parked::Told {});
            parker.tell();
        });
    }
}
