//! Lock policies: pure rules that decide when a waiter asks for the lock, who gets it next, and
//! whether the one who releases it may take it back.
//!
//! A policy is a state machine with one door, [`Policy::step`]. It reads no clock, no environment
//! and no thread id; it allocates nothing and never blocks. A *driver* (the preloaded library, the
//! lab, the simulator) tells it what happened and does what it says, so the same policy runs
//! under an unmodified CPython and in virtual time, and a recorded run replays exactly.
//!
//! How to add a policy: see `docs/design/001-policy-trait.md`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod adaptive;
mod any;
mod catalogue;
pub mod classic;
pub mod driver;
pub mod fifo;
pub mod home;
pub mod mutex;
mod parse;
mod predictor;
pub mod priority;
mod queue;
mod slots;
pub mod ticks;
pub mod timeout;
pub mod timer;

pub use any::{AnyPolicy, Spec};
pub use catalogue::{About, Setting, Takes, Unit, catalogue};
pub use driver::Driver;
pub use parse::{ParseError, Rules};
pub use slots::{MAX_THREADS, Slot};

use core::fmt;

/// A point in time or a length of time, in nanoseconds. Points count from an origin of the
/// driver's; a policy uses differences only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);
    pub const MAX: Nanos = Nanos(u64::MAX);

    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    pub const fn after(self, length: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(length.0))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

/// A thread, as the driver numbers it: an index below the length of the slots the policy was made
/// with. A driver may use a number again after [`Event::Start`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterId(pub u32);

/// What happened. The driver reports events in the order in which they took effect, one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A thread is new under this number. `priority` is its static priority: more goes first,
    /// 0 is usual; only the `priority` policy reads it.
    Start { who: WaiterId, priority: i8 },
    /// `who`, which has not held the lock yet, was made by `by`, another thread that uses it.
    /// Reported if the driver can tell, at the latest before the first [`Event::Acquire`].
    Made { who: WaiterId, by: WaiterId },
    /// `who`, which was elsewhere, was woken there by `by`, another thread that uses the lock: it
    /// released a lock or signalled a condition that `who` waited for. Reported if the driver can
    /// tell, before the [`Event::Arrive`] or [`Event::Acquire`] that ends the absence.
    Woken { who: WaiterId, by: WaiterId },
    /// The program's own switch interval is `length` from now on (CPython:
    /// `sys.setswitchinterval`).
    Interval { length: Nanos },
    /// `who` finds the lock held, or kept for another, and begins to wait; or it waits on after
    /// [`Action::Ask`] or [`Action::Wake`].
    Arrive { who: WaiterId },
    /// `who` has taken the lock.
    Acquire { who: WaiterId },
    /// `who` has given the lock up. `asked`: a drop request was out. If the policy forces a switch
    /// ([`Policy::forces_switch`]), it cannot take the lock back then before another thread has had
    /// it.
    Release { who: WaiterId, asked: bool },
    /// The timer of `who` has run out.
    Expire { who: WaiterId },
    /// `who` waits no longer, and has not taken the lock.
    Leave { who: WaiterId },
}

/// What the driver must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The waiter `who` asks the holder to drop the lock at its next check.
    Ask { who: WaiterId },
    /// The waiter `who` tries to take the free lock now. If another thread is quicker, it arrives
    /// again.
    Wake { who: WaiterId },
    /// The waiter `who`, who was told to wake and has neither taken the lock nor arrived again
    /// since, waits on: another is to have it. Without effect if it is on its way already.
    Recall { who: WaiterId },
    /// The free lock is kept for the waiter `who`, who takes it now. Others that come meanwhile
    /// arrive and wait. A later grant, before it was taken, is in place of this one. A driver that
    /// cannot keep the lock does as for `Wake`.
    Grant { who: WaiterId },
    /// Report [`Event::Expire`] for the waiter `who` at `at`, unless it is gone or its timer was
    /// set anew by then.
    Timer { who: WaiterId, at: Nanos },
    /// The lock is likely to come to the waiter `who` before `until`: it does better to stay
    /// awake till then. A point in the past: it may go to sleep. Advice, never needed for progress.
    Linger { who: WaiterId, until: Nanos },
}

/// The actions of one step, in order. A step fills at most [`Actions::CAPACITY`] places; a test
/// holds every policy to that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Actions {
    list: [Action; Actions::CAPACITY],
    len: usize,
}

impl Actions {
    pub const CAPACITY: usize = 8;

    pub const fn new() -> Actions {
        Actions { list: [Action::Wake { who: WaiterId(0) }; Actions::CAPACITY], len: 0 }
    }

    /// Adds an action; drops it when there is no room (see [`Actions::CAPACITY`]).
    pub fn push(&mut self, action: Action) {
        debug_assert!(self.len < Actions::CAPACITY, "a step had too many actions");
        if let Some(place) = self.list.get_mut(self.len) {
            *place = action;
            self.len += 1;
        }
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn as_slice(&self) -> &[Action] {
        self.list.get(..self.len).unwrap_or(&[])
    }
}

impl Default for Actions {
    fn default() -> Self {
        Actions::new()
    }
}

/// Sees every event and action of a policy, in order: a recorder, a counter. The driver that steps the
/// policy tells it.
pub trait Observer {
    fn event(&mut self, now: Nanos, event: Event);
    fn action(&mut self, now: Nanos, action: Action);
}

impl Observer for () {
    fn event(&mut self, _: Nanos, _: Event) {}
    fn action(&mut self, _: Nanos, _: Action) {}
}

/// The rule. One value governs one lock.
pub trait Policy {
    /// Takes in one event and appends what is to be done to `actions`, which the caller has
    /// cleared. `now` never goes back.
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions);

    /// Whether a thread that gave the lock up on request has to wait until another one has had it;
    /// the same for each of a policy's life.
    fn forces_switch(&self) -> bool {
        true
    }

    /// Whether `who` computes: it holds the lock, or waits for it, without a claim to go first, and
    /// not for a moment at a time.
    /// Such threads take turns on one core's worth of work, and a driver may gather them there.
    fn computes(&self, _who: WaiterId) -> bool {
        false
    }

    /// Whose timers are to run out when they are due, in a driver in which one thread sees to all of
    /// them: of all others it may report them as late as is convenient, with the next step. `None`:
    /// all.
    fn punctual(&self) -> Option<[Option<WaiterId>; 3]> {
        None
    }

    /// The longest that a waiter may wait while `threads` threads use the lock and every holder
    /// heeds a drop request within `check`; `None`: no bound is promised.
    fn bound(&self, threads: u32, check: Nanos) -> Option<Nanos>;
}
