//! Where one waiter waits: a word to sleep on, and what it was told meanwhile.
//!
//! | `state` bit | set by | cleared by | says |
//! |---|---|---|---|
//! | `WOKEN` | a waker | the waiter, or who calls it back, with the guard held | look at the lock |
//! | `RETIME` | a waker | the waiter, before it looks at the times | `timer`, `floor` or `linger` changed |
//! | `PARKED` | the waiter, before it sleeps | the waiter, after | a wake-up needs a system call |
//!
//! The times are written by wakers and read by the waiter without the guard. Both sides go through
//! `state` with a read-modify-write, so their order there decides:
//! - a waker sets `RETIME` before the waiter announces `PARKED`: the announcement fails, since the
//!   word is not 0, and the waiter looks at the times again;
//! - after it: the waker sees `PARKED`, and wakes the sleeper if it would sleep too long. A sleep
//!   that has not begun does not begin, since the word is no longer `PARKED` alone.
//!
//! A waiter that was woken needs no second system call: `RETIME` stays set until it looks, so that the
//! word is not `PARKED` alone even if the wake-up is taken back.
//!
//! Checked in every order with loom (`ci/loom`).

use deconvoy_policy::Nanos;
use deconvoy_policy::home::{Keep, Linger, Place};

use crate::kept::Kept;
use crate::primitive::{AtomicU32, AtomicU64, Ordering, const_but_for_loom, spin_loop};
use crate::{Cores, System};

const WOKEN: u32 = 1;
const RETIME: u32 = 2;
const PARKED: u32 = 4;

/// Looks at the word between two looks at the clock.
const SPINS: u32 = if cfg!(loom) { 1 } else { 24 };

const NEVER: u64 = u64::MAX;

/// A point in time, which is `NEVER` in fresh memory: the parkers of all threads there may be take
/// no room until they are used.
#[derive(Debug)]
struct Point(AtomicU64);

impl Point {
    const_but_for_loom! {
        pub fn never() -> Point {
            Point(AtomicU64::new(!NEVER))
        }
    }

    fn get(&self) -> u64 {
        !self.0.load(Ordering::Relaxed)
    }

    fn set(&self, at: u64) {
        self.0.store(!at, Ordering::Relaxed);
    }
}

#[derive(Debug)]
#[repr(C, align(128))]
pub struct Parker {
    state: AtomicU32,
    /// The gate that the thread waits at, asleep or awake, by number; 0: none. Written with the
    /// guard of that gate held, and read with that of any: what is there of another gate may be
    /// old.
    inside: AtomicU32,
    /// When its timer runs out.
    timer: Point,
    /// When it asks, whatever else happens.
    floor: Point,
    /// 1: it came to its floor, but could not ask in that wait.
    missed: AtomicU32,
    /// Until when it should stay awake.
    linger: AtomicU64,
    /// Until when it sleeps; valid while `PARKED`.
    sleeps_until: AtomicU64,
    /// Where the thread is kept: from before it sleeps until it has the lock.
    pub(crate) kept: Kept,
    /// Where whoever woke it last was running, as core + 1; 0: not known. Written before `WOKEN` is
    /// set, and of use only then.
    waker: AtomicU32,
}

impl Default for Parker {
    fn default() -> Self {
        Parker::new()
    }
}

impl Parker {
    const_but_for_loom! {
        pub fn new() -> Parker {
            Parker {
                state: AtomicU32::new(0),
                inside: AtomicU32::new(0),
                timer: Point::never(),
                floor: Point::never(),
                missed: AtomicU32::new(0),
                linger: AtomicU64::new(0),
                sleeps_until: AtomicU64::new(0),
                kept: Kept::new(),
                waker: AtomicU32::new(0),
            }
        }
    }

    /// The waiter enters gate number `gate`, and asks at `floor` at the latest; guard held.
    pub fn enter(&self, gate: u32, floor: Nanos) {
        self.state.store(0, Ordering::Relaxed);
        self.floor.set(floor.0);
        self.timer.set(NEVER);
        // `linger` stays: a waiter that goes out to ask and comes back lingers on.
        self.inside.store(gate, Ordering::Relaxed);
    }

    /// The calling thread, whose parker this is, may run where it may.
    pub fn set_free(&self, system: &impl System) {
        self.kept.settle(system, Keep::Anywhere);
    }

    /// Its thread, which is about to be woken, runs where `keep` says from then on, until it sets
    /// itself free. `system` is that thread's.
    pub fn keep(&self, system: &impl System, keep: Keep) {
        self.kept.settle(system, keep);
    }

    /// Its thread may run on other cores from now on, wherever it is kept at present: see
    /// [`Kept::allow`].
    pub fn allow(&self, system: &impl System, set: impl FnOnce() -> Option<Cores>) {
        self.kept.allow(system, set);
    }

    /// Its thread is another one from now on.
    pub fn forget(&self) {
        self.exit();
        self.take_missed();
        self.kept.forget();
    }

    /// In a forked child, in which its thread is not.
    pub fn forked(&self) {
        self.forget();
        self.kept.forked();
    }

    /// The waiter goes; guard held.
    pub fn exit(&self) {
        self.inside.store(0, Ordering::Relaxed);
    }

    pub fn is_inside(&self, gate: u32) -> bool {
        self.inside.load(Ordering::Relaxed) == gate
    }

    /// It came to its floor, but could not ask in that wait; guard held.
    pub fn set_missed(&self) {
        self.missed.store(1, Ordering::Relaxed);
    }

    /// Whether that was so; guard held. It is forgotten.
    pub fn take_missed(&self) -> bool {
        let missed = self.missed.load(Ordering::Relaxed) == 1;
        self.missed.store(0, Ordering::Relaxed);
        missed
    }

    /// Whether a waker said to look at the lock; guard held. It is forgotten.
    pub fn take_woken(&self) -> bool {
        // The guard orders this after the waker's write.
        self.state.fetch_and(!WOKEN, Ordering::Relaxed) & WOKEN != 0
    }

    /// Whether the timer has run out by `now`; if so it is unset.
    pub fn take_timer(&self, now: Nanos) -> bool {
        let due = self.timer.get() <= now.0;
        if due {
            self.timer.set(NEVER);
        }
        due
    }

    /// Whether it is to ask whatever the policy says.
    pub fn is_at_floor(&self, now: Nanos) -> bool {
        self.floor.get() <= now.0
    }

    /// Tells the waiter to look at the lock; guard held. Whether it was awake already.
    pub fn wake(&self, system: &impl System) -> bool {
        self.waker.store(system.core().map_or(0, |core| core.wrapping_add(1)), Ordering::Relaxed);
        // Release pairs with the Acquire in `park`: what was done before is seen by the woken.
        let before = self.state.fetch_or(WOKEN, Ordering::Release);
        if before & PARKED != 0 && before & WOKEN == 0 {
            system.futex_wake(&self.state, 1);
        }
        before & PARKED == 0
    }

    /// Whether it was woken, by a thread that was running on the core on which it, the calling one,
    /// runs now: and which does not get on until this one sleeps.
    pub fn is_on_the_core_of_its_waker(&self, system: &impl System) -> bool {
        if self.state.load(Ordering::Relaxed) & WOKEN == 0 {
            return false;
        }
        let waker = self.waker.load(Ordering::Relaxed);
        waker != 0 && system.core().is_some_and(|core| core.wrapping_add(1) == waker)
    }

    /// Sets the timer; guard held.
    pub fn set_timer(&self, system: &impl System, at: Nanos) {
        self.timer.set(at.0);
        self.retime(system, |sleeps_until| at.0 < sleeps_until);
    }

    /// Sets when it asks, whatever else happens; guard held.
    pub fn set_floor(&self, system: &impl System, at: Nanos) {
        self.floor.set(at.0);
        self.retime(system, |sleeps_until| at.0 < sleeps_until);
    }

    /// Sets until when to stay awake; guard held.
    pub fn set_linger(&self, system: &impl System, until: Nanos) {
        self.linger.store(until.0, Ordering::Relaxed);
        self.retime(system, |_| until.0 > 0);
    }

    /// Makes the waiter look at the times again, if it is about to sleep, or sleeps and `matters`.
    /// One that was woken looks at them on its way.
    fn retime(&self, system: &impl System, matters: impl FnOnce(u64) -> bool) {
        // Release pairs with the Acquire in `park`, where the times are read; Acquire with the
        // announcement there, for `sleeps_until`.
        let before = self.state.fetch_or(RETIME, Ordering::AcqRel);
        if before & (PARKED | WOKEN) == PARKED && matters(self.sleeps_until.load(Ordering::Relaxed))
        {
            system.futex_wake(&self.state, 1);
        }
    }

    /// Waits, without the guard, until it is told to look, or its timer or its floor runs out;
    /// asleep where `place` says.
    pub fn park(&self, system: &impl System, place: Place) {
        loop {
            // Acquire pairs with the Release in `wake` and `retime`.
            if self.state.fetch_and(!RETIME, Ordering::Acquire) & WOKEN != 0 {
                return;
            }
            let until = self.timer.get().min(self.floor.get());
            let linger = self.linger.load(Ordering::Relaxed);
            let now = system.now().0;
            if now >= until {
                return;
            }
            if now < linger {
                match place.linger {
                    Linger::Never => {}
                    Linger::Spin => {
                        self.spin();
                        continue;
                    }
                    Linger::Yield => {
                        self.kept.settle(system, place.keep);
                        system.yield_now();
                        continue;
                    }
                }
            }
            self.kept.settle(system, place.keep);
            self.sleeps_until.store(until, Ordering::Relaxed);
            // Release pairs with the Acquire in `retime`. It fails when the word is not 0: there is
            // something to look at.
            let parked =
                self.state.compare_exchange(0, PARKED, Ordering::AcqRel, Ordering::Relaxed);
            if parked.is_ok() {
                system.futex_wait(&self.state, PARKED, Some(Nanos(until)));
                self.state.fetch_and(!PARKED, Ordering::Acquire);
            }
        }
    }

    fn spin(&self) {
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) & (WOKEN | RETIME) != 0 {
                return;
            }
            spin_loop();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fake::{Fake, cores};
    use std::cell::RefCell;

    #[test]
    fn only_a_waker_on_the_same_core_is_in_the_way() {
        let on = |core| Fake { allowed: RefCell::new(cores(&[0, 1])), core };
        let parker = Parker::new();
        assert!(!parker.is_on_the_core_of_its_waker(&on(Some(0))));
        parker.wake(&on(Some(1)));
        assert!(!parker.is_on_the_core_of_its_waker(&on(Some(0))));
        assert!(parker.is_on_the_core_of_its_waker(&on(Some(1))));
        assert!(!parker.is_on_the_core_of_its_waker(&on(None)));
        // It waits again, and nobody has woken it yet.
        parker.enter(1, Nanos(0));
        assert!(!parker.is_on_the_core_of_its_waker(&on(Some(1))));
        parker.wake(&on(None));
        assert!(!parker.is_on_the_core_of_its_waker(&on(None)));
    }
}
