//! `priority`: static priorities with immediate preemption.
//!
//! Source: slides 71 and 72 of Beazley's "In Search of the Perfect GIL" (2011); Ruby 1.8.
//! - state: a queue in order of priority, then of arrival; the holder;
//! - on arrive: a waiter above the holder asks at once, an equal one after an interval, one below
//!   never;
//! - on release: the lock is kept for the first of the queue if it was asked for or that one is
//!   above the releaser; else the first may try.
//!
//! Tunables: each thread's priority, by name or native id (0 when no rule matches; more goes
//! first); `interval` between equals (5 ms, or what the program sets).
//!
//! Pathology: starvation of whatever is below a busy thread, and priority inversion (slide 73).
//! It promises no bound.

use crate::queue::Queue;
use crate::slots::{QueueId, Slots};
use crate::timeout::DEFAULT_INTERVAL;
use crate::{Action, Actions, Event, Nanos, Policy, Slot, WaiterId};

/// How long a waiter that has asked stays awake for the answer: a holder in bytecode checks
/// within a microsecond or two, a sleep and a wake-up cost about 35 us on a virtual machine.
const ANSWER: Nanos = Nanos::from_micros(50);

#[derive(Debug)]
pub struct Priority<'a> {
    slots: Slots<'a>,
    waiting: Queue,
    interval: Nanos,
    holder: Option<WaiterId>,
    /// Whose turn it is among equals, and since when.
    turn: Option<(WaiterId, Nanos)>,
}

impl<'a> Priority<'a> {
    pub fn new(slots: &'a mut [Slot]) -> Priority<'a> {
        Priority {
            slots: Slots::new(slots),
            waiting: Queue::new(QueueId::READY),
            interval: DEFAULT_INTERVAL,
            holder: None,
            turn: None,
        }
    }

    fn priority(&self, who: WaiterId) -> i8 {
        self.slots.at(who).priority
    }

    /// A free lock goes to the first of the queue, also in place of one who was to have it.
    fn grant_first(&mut self, actions: &mut Actions) {
        if let Some(who) = self.waiting.head() {
            actions.push(Action::Grant { who });
        }
    }

    /// When the holder's turn is over, as an equal has it. One that was made to give way by somebody of
    /// more priority, and is back, goes on with its turn.
    fn turn_ends(&self, now: Nanos) -> Nanos {
        match (self.turn, self.holder) {
            (Some((who, since)), Some(holder)) if who == holder => {
                since.after(self.interval).max(now)
            }
            _ => now.after(self.interval),
        }
    }

    /// A turn begins, unless this is one that interrupts it, or goes on.
    fn begins_turn(&mut self, now: Nanos, who: WaiterId) {
        match self.turn {
            Some((of, _)) if of == who || self.priority(who) > self.priority(of) => {}
            _ => self.turn = Some((who, now)),
        }
    }

    /// Sets a timer for the first of the queue, if it may ask the holder.
    fn time_head(&mut self, now: Nanos, actions: &mut Actions) {
        let (Some(holder), Some(head)) = (self.holder, self.waiting.head()) else { return };
        let (holder, mine) = (self.priority(holder), self.priority(head));
        if mine >= holder {
            self.slots.at_mut(head).mark = 0;
            let at = if mine > holder { now } else { self.turn_ends(now) };
            actions.push(Action::Timer { who: head, at });
        }
    }

    /// What `who` must do about the present holder: ask now (`due`), later, or never.
    fn consider(&mut self, now: Nanos, who: WaiterId, due: bool, actions: &mut Actions) {
        let Some(holder) = self.holder else {
            self.grant_first(actions);
            // Whoever takes the lock may be an equal, and sets a timer for the first of the queue
            // only.
            actions.push(Action::Timer { who, at: now.after(self.interval) });
            return;
        };
        let holder = self.priority(holder);
        let mine = self.priority(who);
        let ends = self.turn_ends(now);
        if mine > holder || (mine == holder && (due || ends <= now)) {
            actions.push(Action::Ask { who });
            actions.push(Action::Linger { who, until: now.after(ANSWER) });
        } else if mine == holder {
            actions.push(Action::Timer { who, at: ends });
        }
    }
}

impl Policy for Priority<'_> {
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        match event {
            Event::Start { who, priority } => {
                self.turn = self.turn.filter(|(of, _)| *of != who);
                self.waiting.remove(&mut self.slots, who);
                self.slots.start(who, priority);
            }
            Event::Interval { length } => self.interval = length,
            Event::Arrive { who } if self.slots.has(who) => {
                let asked = self.slots.at(who).mark;
                if !self.waiting.holds(&self.slots, who) {
                    let mine = self.priority(who);
                    self.waiting.insert(&mut self.slots, who, |slots, other| {
                        slots.at(other).priority >= mine
                    });
                } else if asked != 0 {
                    // It comes back from asking; if the request was lost, it asks again.
                    self.slots.at_mut(who).mark = 0;
                    actions.push(Action::Timer { who, at: now.after(self.interval) });
                    return;
                }
                self.consider(now, who, false, actions);
                self.slots.at_mut(who).mark =
                    u64::from(matches!(actions.as_slice().first(), Some(Action::Ask { .. })));
            }
            Event::Expire { who } if self.waiting.holds(&self.slots, who) => {
                self.consider(now, who, true, actions);
                self.slots.at_mut(who).mark =
                    u64::from(matches!(actions.as_slice().first(), Some(Action::Ask { .. })));
            }
            Event::Acquire { who } => {
                self.waiting.remove(&mut self.slots, who);
                self.slots.at_mut(who).mark = 0;
                self.holder = Some(who);
                self.begins_turn(now, who);
                self.time_head(now, actions);
            }
            Event::Release { who: releaser, asked } => {
                self.holder = None;
                match self.waiting.head() {
                    // Kept for an equal that has to wake up, it would be idle meanwhile.
                    Some(who) if !asked && self.priority(who) <= self.priority(releaser) => {
                        actions.push(Action::Wake { who });
                    }
                    _ => self.grant_first(actions),
                }
            }
            Event::Leave { who } => {
                let was_head = self.waiting.head() == Some(who);
                self.waiting.remove(&mut self.slots, who);
                if self.holder.is_none() {
                    self.grant_first(actions);
                } else if was_head {
                    self.time_head(now, actions);
                }
            }
            Event::Made { .. }
            | Event::Woken { .. }
            | Event::Arrive { .. }
            | Event::Expire { .. } => {}
        }
    }

    fn bound(&self, _threads: u32, _check: Nanos) -> Option<Nanos> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn said(policy: &mut Priority<'_>, event: Event) -> Vec<Action> {
        let mut actions = Actions::new();
        policy.step(Nanos::ZERO, event, &mut actions);
        actions.as_slice().to_vec()
    }

    fn times(actions: &[Action], who: WaiterId) -> bool {
        actions.iter().any(|&action| matches!(action, Action::Timer { who: of, .. } if of == who))
    }

    /// Threads of equal priority: the first holds the lock, the others wait.
    fn with_equals(count: u32, test: impl FnOnce(&mut Priority<'_>)) {
        let mut slots = std::vec![Slot::default(); count as usize];
        let mut policy = Priority::new(&mut slots);
        for who in (0..count).map(WaiterId) {
            said(&mut policy, Event::Start { who, priority: 0 });
            let event = if who.0 == 0 { Event::Acquire { who } } else { Event::Arrive { who } };
            said(&mut policy, event);
        }
        test(&mut policy);
    }

    #[test]
    fn a_timer_that_runs_out_while_the_lock_is_on_its_way_is_set_anew() {
        with_equals(3, |policy| {
            said(policy, Event::Release { who: WaiterId(0), asked: true });
            let actions = said(policy, Event::Expire { who: WaiterId(2) });
            assert!(times(&actions, WaiterId(2)), "{actions:?}");
        });
    }

    #[test]
    fn a_turn_that_is_interrupted_is_not_begun_anew() {
        let mut slots = std::vec![Slot::default(); 3];
        let mut policy = Priority::new(&mut slots);
        let at = |policy: &mut Priority<'_>, ns, event| {
            let mut actions = Actions::new();
            policy.step(Nanos(ns), event, &mut actions);
            actions.as_slice().to_vec()
        };
        let [one, other, server] = [0, 1, 2].map(WaiterId);
        for (who, priority) in [(one, 0), (other, 0), (server, 1)] {
            at(&mut policy, 0, Event::Start { who, priority });
        }
        at(&mut policy, 100, Event::Acquire { who: one });
        at(&mut policy, 200, Event::Arrive { who: other });
        at(&mut policy, 300, Event::Release { who: one, asked: true });
        at(&mut policy, 300, Event::Acquire { who: server });
        at(&mut policy, 400, Event::Release { who: server, asked: false });
        let actions = at(&mut policy, 500, Event::Acquire { who: one });
        let ends = Nanos(100).after(policy.interval);
        assert_eq!(actions, [Action::Timer { who: other, at: ends }]);
    }

    #[test]
    fn the_next_in_the_queue_takes_over_from_one_that_leaves() {
        with_equals(3, |policy| {
            let actions = said(policy, Event::Leave { who: WaiterId(1) });
            assert!(times(&actions, WaiterId(2)), "{actions:?}");
        });
        with_equals(3, |policy| {
            let actions = said(policy, Event::Leave { who: WaiterId(2) });
            assert!(actions.is_empty(), "one behind the first: {actions:?}");
        });
    }
}
