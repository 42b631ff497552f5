//! A policy beside a lock whose own scheduler stays in charge: it is told who waits and who holds
//! the lock, and says whether the holder is to be asked and who is to go next. Whoever keeps the
//! lock does of that what it can (Ruby's lock: `crates/shim/src/ruby`).
//!
//! A waiter that was called may find that another one was quicker, or was never let choose: then it
//! arrives again, for the policy.

mod places;
#[cfg(all(test, not(loom)))]
mod tests;

use deconvoy_policy::home::HomeCore;
use deconvoy_policy::{Action, Actions, AnyPolicy, Event, Nanos, Observer, Policy, WaiterId};

use crate::seat::Seat;

/// Nobody leaves the free lock to another one for longer. A thread that came while nobody held it takes
/// it at once: if nobody has after this long, its last holder never let go of it.
pub const UNTAKEN: Nanos = Nanos::from_millis(1);

/// How it is with a thread; all zeroes: it wants nothing.
#[repr(C)]
pub struct Waiting {
    state: u32,
    /// When its timer runs out; 0: there is none.
    timer: u64,
    /// Until when it had better stay awake.
    linger: u64,
}

/// | state | means |
/// |---|---|
/// | `OUT` | it does not wait |
/// | `WAITS` | it has arrived, for the policy |
/// | `CALLED` | it is on its way to the free lock |
/// | `PASSED` | it gave the lock up to let others go first; the policy is told of it later |
const OUT: u32 = 0;
const WAITS: u32 = 1;
const CALLED: u32 = 2;
const PASSED: u32 = 3;

/// One that lets others go first, by itself, lets them have it for so long; until they give it up, at
/// the latest. It would have them asked at once, and nobody would do anything but pass.
const PASS: Nanos = Nanos::from_millis(5);

/// Who may take a lock that nobody holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// The policy keeps it for this one.
    Of(WaiterId),
    /// The policy has woken this one; whoever is quicker takes it.
    Quickest(WaiterId),
    /// The policy waits for somebody that is about to come back, until then at the latest.
    Undecided(Nanos),
    Anyones,
}

/// Timers that need not be punctual are not later than this.
const LATE: Nanos = Nanos::from_millis(5);

pub struct Steer<'a, O> {
    policy: AnyPolicy<'a>,
    /// The key of each thread's seat, as last told to the policy; 0: none.
    known: &'a mut [u32],
    waiting: &'a mut [Waiting],
    /// All threads that were seen have numbers below this.
    seen: usize,
    /// How many are `CALLED`, and `PASSED`.
    called: usize,
    passed: usize,
    latest: Nanos,
    actions: Actions,
    observer: O,
    holder: Option<Seat>,
    /// Who has it next: the lock is its own, and it has to wake up yet.
    handed: Option<Seat>,
    last: Option<Seat>,
    /// Whether the last holder was asked.
    was_asked: bool,
    asks: bool,
    next: Option<WaiterId>,
    /// For that one, and no other is to take it.
    is_kept: bool,
    /// No timer runs out before.
    earliest: Nanos,
    cores: HomeCore,
}

impl<'a, O: Observer> Steer<'a, O> {
    /// `known` and `waiting`: zeroes, one for each thread number. `cores`: how many can run at once.
    pub fn new(
        policy: AnyPolicy<'a>,
        known: &'a mut [u32],
        waiting: &'a mut [Waiting],
        cores: u32,
        observer: O,
    ) -> Steer<'a, O> {
        Steer {
            policy,
            known,
            waiting,
            seen: 0,
            called: 0,
            passed: 0,
            latest: Nanos::ZERO,
            actions: Actions::new(),
            observer,
            holder: None,
            handed: None,
            last: None,
            was_asked: false,
            asks: false,
            next: None,
            is_kept: false,
            earliest: Nanos::MAX,
            cores: HomeCore::new(cores > 1),
        }
    }

    fn state(&self, who: WaiterId) -> u32 {
        self.waiting.get(who.0 as usize).map_or(OUT, |one| one.state)
    }

    fn set(&mut self, who: WaiterId, state: u32) {
        let Some(one) = self.waiting.get_mut(who.0 as usize) else { return };
        self.called += usize::from(state == CALLED);
        self.called -= usize::from(one.state == CALLED);
        self.passed += usize::from(state == PASSED);
        self.passed -= usize::from(one.state == PASSED);
        one.state = state;
        one.timer = 0;
    }

    fn step(&mut self, now: Nanos, event: Event) {
        let now = now.max(self.latest);
        self.latest = now;
        self.observer.event(now, event);
        self.actions.clear();
        self.policy.step(now, event, &mut self.actions);
        let mut done = 0;
        while let Some(&action) = self.actions.as_slice().get(done) {
            done += 1;
            self.observer.action(now, action);
            match action {
                Action::Ask { .. } if self.holder.is_some() => {
                    self.asks = true;
                }
                Action::Ask { .. } => {}
                Action::Wake { who } | Action::Grant { who } => {
                    let is_called = self.state(who) == CALLED && self.next == Some(who);
                    if self.holder.is_none() && (self.state(who) == WAITS || is_called) {
                        self.set(who, CALLED);
                        self.next = Some(who);
                        self.is_kept = matches!(action, Action::Grant { .. });
                    }
                }
                Action::Recall { who } => {
                    if self.state(who) == CALLED {
                        self.set(who, WAITS);
                        self.next = self.next.filter(|next| *next != who);
                    }
                }
                Action::Timer { who, at } => {
                    if let Some(one) = self.waiting.get_mut(who.0 as usize)
                        && one.state == WAITS
                    {
                        one.timer = at.0.max(1);
                        self.earliest = self.earliest.min(at);
                    }
                }
                Action::Linger { who, until } => {
                    if let Some(one) = self.waiting.get_mut(who.0 as usize) {
                        one.linger = until.0;
                    }
                }
            }
        }
    }

    fn greet(&mut self, now: Nanos, seat: Seat) {
        let Some(known) = self.known.get_mut(seat.who.0 as usize) else { return };
        if *known != seat.key() {
            *known = seat.key();
            self.seen = self.seen.max(seat.who.0 as usize + 1);
            self.step(now, Event::Start { who: seat.who, priority: seat.priority });
        }
    }

    /// The calling thread, `seat`, was made by the thread `by` of that generation, and has not held
    /// the lock yet.
    pub fn made(&mut self, now: Nanos, seat: Seat, (by, generation): (WaiterId, u32)) {
        let known = self.known.get(by.0 as usize).copied().unwrap_or(0);
        if generation != 0 && known >> 8 == Seat::stem(generation) {
            self.greet(now, seat);
            self.step(now, Event::Made { who: seat.who, by });
        }
    }

    /// The thread `seat` comes from a wait that the thread `by` has ended.
    pub fn woken(&mut self, now: Nanos, seat: Seat, by: WaiterId) {
        if self.known.get(by.0 as usize).is_some_and(|&known| known != 0) {
            self.greet(now, seat);
            self.step(now, Event::Woken { who: seat.who, by });
        }
    }

    /// How long the lock's own scheduler lets a holder be.
    pub fn set_interval(&mut self, now: Nanos, length: Nanos) {
        self.step(now, Event::Interval { length });
    }

    /// The free lock was given to a waiter, which is about to wake up.
    pub fn handed(&mut self, seat: Seat) {
        if self.holder.is_none() {
            self.handed = Some(seat);
        }
    }

    /// A thread wants the lock.
    pub fn arrives(&mut self, now: Nanos, seat: Seat) {
        self.greet(now, seat);
        if let Some(handed) = self.handed.filter(|handed| handed.who != seat.who) {
            self.acquired(now, handed, None);
        }
        if self.holder.is_some_and(|holder| holder.who != seat.who) {
            self.set(seat.who, WAITS);
            self.step(now, Event::Arrive { who: seat.who });
        } else {
            // It takes it at once, or another one is quicker.
            self.set_until(seat.who, CALLED, now.after(UNTAKEN));
        }
    }

    fn set_until(&mut self, who: WaiterId, state: u32, until: Nanos) {
        self.set(who, state);
        if let Some(one) = self.waiting.get_mut(who.0 as usize) {
            one.timer = until.0;
            self.earliest = self.earliest.min(until);
        }
    }

    /// A thread wants the lock back that gave it up by itself to let others go first.
    pub fn passes(&mut self, now: Nanos, seat: Seat) {
        self.greet(now, seat);
        self.set_until(seat.who, PASSED, now.after(PASS));
    }

    /// Whether `who` has given the lock up last, and was not asked to.
    pub fn is_voluntary(&self, who: WaiterId) -> bool {
        !self.was_asked && self.last.is_some_and(|last| last.who == who)
    }

    /// Those that are in this state, `CALLED` or `PASSED`, arrive, for the policy.
    fn all_arrive(&mut self, now: Nanos, state: u32) {
        for number in 0..self.seen {
            let left = if state == CALLED { self.called } else { self.passed };
            if left == 0 {
                return;
            }
            let who = WaiterId(number as u32);
            if self.state(who) == state {
                self.set(who, WAITS);
                self.step(now, Event::Arrive { who });
            }
        }
    }

    /// A thread has taken the lock, on the core `here` if that is known.
    pub fn acquired(&mut self, now: Nanos, seat: Seat, here: Option<u32>) {
        self.greet(now, seat);
        if let Some(holder) = self.holder {
            if holder == seat {
                return;
            }
            self.released(now, holder, None);
        }
        self.set(seat.who, OUT);
        self.next = None;
        self.handed = None;
        self.asks = false;
        self.holder = Some(seat);
        self.last = Some(seat);
        self.step(now, Event::Acquire { who: seat.who });
        self.cores.acquired(here, self.policy.computes(seat.who));
        self.all_arrive(now, CALLED);
    }

    /// The holder has given the lock up, on the core `here` if that is known.
    pub fn released(&mut self, now: Nanos, seat: Seat, here: Option<u32>) {
        if self.holder.is_none_or(|holder| holder.who != seat.who) {
            return;
        }
        let asked = self.asks;
        self.all_arrive(now, PASSED);
        self.cores.released(here);
        self.holder = None;
        self.next = None;
        self.asks = false;
        self.was_asked = asked;
        self.step(now, Event::Release { who: seat.who, asked });
    }

    /// A thread that may have been waiting has ended.
    pub fn left(&mut self, now: Nanos, seat: Seat) {
        self.released(now, seat, None);
        let state = self.state(seat.who);
        self.set(seat.who, OUT);
        if state == WAITS || state == CALLED {
            self.step(now, Event::Leave { who: seat.who });
        }
        self.next = self.next.filter(|next| *next != seat.who);
        self.handed = self.handed.filter(|handed| handed.who != seat.who);
        self.last = self.last.filter(|last| last.who != seat.who);
    }

    /// Tells the policy of the timers that have run out.
    pub fn look(&mut self, now: Nanos) {
        if now < self.earliest {
            return;
        }
        // What is set meanwhile is found in the end, or the next time.
        self.earliest = Nanos::MAX;
        for number in 0..self.seen {
            let who = WaiterId(number as u32);
            let Some(one) = self.waiting.get_mut(number) else { return };
            if one.timer == 0 || one.timer > now.0 {
                continue;
            }
            one.timer = 0;
            match (one.state, self.holder, self.last) {
                (WAITS, _, _) => self.step(now, Event::Expire { who }),
                (PASSED, Some(_), _) => {
                    self.set(who, WAITS);
                    self.step(now, Event::Arrive { who });
                }
                (PASSED, None, _) => self.set_until(who, CALLED, now.after(UNTAKEN)),
                (CALLED, None, Some(last)) if last.who != who => self.acquired(now, last, None),
                _ => {}
            }
        }
        let timers = self.waiting.iter().take(self.seen).map(|one| one.timer);
        let earliest = timers.filter(|&timer| timer > 0).min();
        self.earliest = earliest.map_or(Nanos::MAX, Nanos);
    }

    /// Who may take the lock, which nobody holds.
    pub fn whose(&self, now: Nanos) -> Whose {
        if let Some(who) = self.next {
            return if self.is_kept { Whose::Of(who) } else { Whose::Quickest(who) };
        }
        let waits = |one: &&Waiting| one.state == WAITS && one.timer > 0;
        let timers = self.waiting.iter().take(self.seen).filter(waits).map(|one| Nanos(one.timer));
        let first = timers.min().filter(|timer| timer.since(now) <= UNTAKEN);
        first.map_or(Whose::Anyones, Whose::Undecided)
    }

    /// Whether the holder is asked, and `who` may be the one for whom.
    pub fn asks_for(&self, who: WaiterId) -> bool {
        self.asks && !self.policy.computes(who)
    }

    /// When to look next, at the latest.
    pub fn next_timer(&self) -> Option<Nanos> {
        let first = match self.policy.punctual() {
            Some(first) if self.passed == 0 => first,
            _ => return (self.earliest < Nanos::MAX).then_some(self.earliest),
        };
        let timer = |who: WaiterId| self.waiting.get(who.0 as usize).map_or(0, |one| one.timer);
        let first = first.into_iter().flatten().map(timer).filter(|&timer| timer > 0).min();
        let late = self.earliest.after(LATE);
        let at = first.map_or(late, |first| late.min(Nanos(first)));
        (at < Nanos::MAX).then_some(at)
    }

    /// Whether the holder is to give the lock up at its next check.
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// Who is to have the free lock.
    pub fn next(&self) -> Option<WaiterId> {
        self.next
    }

    pub fn holder(&self) -> Option<WaiterId> {
        self.holder.map(|holder| holder.who)
    }
}
