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
}

impl<'a> Priority<'a> {
    pub fn new(slots: &'a mut [Slot]) -> Priority<'a> {
        Priority {
            slots: Slots::new(slots),
            waiting: Queue::new(QueueId::READY),
            interval: DEFAULT_INTERVAL,
            holder: None,
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

    /// What `who` must do about the present holder: ask now (`due`), later, or never.
    fn consider(&mut self, now: Nanos, who: WaiterId, due: bool, actions: &mut Actions) {
        let Some(holder) = self.holder else {
            self.grant_first(actions);
            return;
        };
        let holder = self.priority(holder);
        let mine = self.priority(who);
        if mine > holder || (mine == holder && due) {
            actions.push(Action::Ask { who });
            actions.push(Action::Linger { who, until: now.after(ANSWER) });
        } else if mine == holder {
            actions.push(Action::Timer { who, at: now.after(self.interval) });
        }
    }
}

impl Policy for Priority<'_> {
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        match event {
            Event::Start { who, priority } => {
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
                if let Some(head) = self.waiting.head()
                    && self.priority(head) >= self.priority(who)
                {
                    self.slots.at_mut(head).mark = 0;
                    let wait = if self.priority(head) > self.priority(who) {
                        Nanos::ZERO
                    } else {
                        self.interval
                    };
                    actions.push(Action::Timer { who: head, at: now.after(wait) });
                }
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
                self.waiting.remove(&mut self.slots, who);
                if self.holder.is_none() {
                    self.grant_first(actions);
                }
            }
            Event::Arrive { .. } | Event::Expire { .. } => {}
        }
    }

    fn bound(&self, _threads: u32, _check: Nanos) -> Option<Nanos> {
        None
    }
}
