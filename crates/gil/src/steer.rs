//! A policy beside a lock whose own scheduler stays in charge: it is told who waits and who holds
//! the lock, and says whether the holder is to be asked and who is to go next. Whoever keeps the
//! lock does of that what it can (Ruby's lock: `crates/shim/src/ruby`).
//!
//! A waiter that was called may find that another one was quicker, or was never let choose: then it
//! arrives again, for the policy.

#[cfg(all(test, not(loom)))]
mod tests;

use deconvoy_policy::{Action, Actions, AnyPolicy, Event, Nanos, Observer, Policy, WaiterId};

use crate::seat::Seat;

/// A thread that came while nobody held the lock takes it at once. If nobody has after this long,
/// its last holder never let go of it.
const UNTAKEN: Nanos = Nanos::from_millis(1);

/// How it is with a thread; all zeroes: it wants nothing.
#[repr(C)]
pub struct Waiting {
    state: u32,
    /// When its timer runs out; 0: there is none.
    timer: u64,
}

/// | state | means |
/// |---|---|
/// | `OUT` | it does not wait |
/// | `WAITS` | it has arrived, for the policy |
/// | `CALLED` | it is on its way to the free lock |
const OUT: u32 = 0;
const WAITS: u32 = 1;
const CALLED: u32 = 2;

pub struct Steer<'a, O> {
    policy: AnyPolicy<'a>,
    /// The key of each thread's seat, as last told to the policy; 0: none.
    known: &'a mut [u32],
    waiting: &'a mut [Waiting],
    /// All threads that were seen have numbers below this.
    seen: usize,
    /// How many are `CALLED`.
    called: usize,
    latest: Nanos,
    actions: Actions,
    observer: O,
    holder: Option<Seat>,
    last: Option<Seat>,
    asks: bool,
    next: Option<WaiterId>,
    /// No timer runs out before.
    earliest: Nanos,
}

impl<'a, O: Observer> Steer<'a, O> {
    /// `known` and `waiting`: zeroes, one for each thread number.
    pub fn new(
        policy: AnyPolicy<'a>,
        known: &'a mut [u32],
        waiting: &'a mut [Waiting],
        observer: O,
    ) -> Steer<'a, O> {
        Steer {
            policy,
            known,
            waiting,
            seen: 0,
            called: 0,
            latest: Nanos::ZERO,
            actions: Actions::new(),
            observer,
            holder: None,
            last: None,
            asks: false,
            next: None,
            earliest: Nanos::MAX,
        }
    }

    fn state(&self, who: WaiterId) -> u32 {
        self.waiting.get(who.0 as usize).map_or(OUT, |one| one.state)
    }

    fn set(&mut self, who: WaiterId, state: u32) {
        let Some(one) = self.waiting.get_mut(who.0 as usize) else { return };
        self.called += usize::from(state == CALLED);
        self.called -= usize::from(one.state == CALLED);
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
                Action::Ask { .. } => self.asks |= self.holder.is_some(),
                Action::Wake { who } | Action::Grant { who } => {
                    if self.holder.is_none() && self.state(who) == WAITS {
                        self.set(who, CALLED);
                        self.next = Some(who);
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
                Action::Linger { .. } => {}
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

    /// How long the lock's own scheduler lets a holder be.
    pub fn set_interval(&mut self, now: Nanos, length: Nanos) {
        self.step(now, Event::Interval { length });
    }

    /// A thread wants the lock.
    pub fn arrives(&mut self, now: Nanos, seat: Seat) {
        self.greet(now, seat);
        if self.holder.is_some_and(|holder| holder.who != seat.who) {
            self.set(seat.who, WAITS);
            self.step(now, Event::Arrive { who: seat.who });
        } else {
            // It takes it at once, or another one is quicker.
            self.set(seat.who, CALLED);
            if let Some(one) = self.waiting.get_mut(seat.who.0 as usize) {
                one.timer = now.after(UNTAKEN).0;
                self.earliest = self.earliest.min(now.after(UNTAKEN));
            }
        }
    }

    /// A thread has taken the lock.
    pub fn acquired(&mut self, now: Nanos, seat: Seat) {
        self.greet(now, seat);
        if let Some(holder) = self.holder {
            if holder == seat {
                return;
            }
            self.released(now, holder);
        }
        self.set(seat.who, OUT);
        self.next = None;
        self.asks = false;
        self.holder = Some(seat);
        self.last = Some(seat);
        self.step(now, Event::Acquire { who: seat.who });
        let mut number = 0;
        while self.called > 0 && number < self.seen {
            let who = WaiterId(number as u32);
            if self.state(who) == CALLED {
                self.set(who, WAITS);
                self.step(now, Event::Arrive { who });
            }
            number += 1;
        }
    }

    /// The holder has given the lock up.
    pub fn released(&mut self, now: Nanos, seat: Seat) {
        if self.holder.is_none_or(|holder| holder.who != seat.who) {
            return;
        }
        self.holder = None;
        self.next = None;
        let asked = self.asks;
        self.asks = false;
        self.step(now, Event::Release { who: seat.who, asked });
    }

    /// A thread that may have been waiting has ended.
    pub fn left(&mut self, now: Nanos, seat: Seat) {
        self.released(now, seat);
        if self.state(seat.who) != OUT {
            self.set(seat.who, OUT);
            self.step(now, Event::Leave { who: seat.who });
        }
        self.next = self.next.filter(|next| *next != seat.who);
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
            if one.state == WAITS {
                self.step(now, Event::Expire { who });
            } else if let (CALLED, None, Some(last)) = (one.state, self.holder, self.last) {
                self.acquired(now, last);
            }
        }
        let timers = self.waiting.iter().take(self.seen).map(|one| one.timer);
        let earliest = timers.filter(|&timer| timer > 0).min();
        self.earliest = earliest.map_or(Nanos::MAX, Nanos);
    }

    /// When to look next, at the latest.
    pub fn next_timer(&self) -> Option<Nanos> {
        (self.earliest < Nanos::MAX).then_some(self.earliest)
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
