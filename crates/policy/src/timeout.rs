//! `timeout`: CPython's own rule, from 3.2 to today.
//!
//! Source: slide 67 of Beazley's "In Search of the Perfect GIL" (2011) and CPython's
//! `Python/ceval_gil.c`.
//! - state: a queue in order of arrival, the number of switches so far;
//! - on arrive: a timer of one switch interval; when it runs out and nobody else has taken the
//!   lock meanwhile, the waiter asks, else it waits another interval;
//! - on release: the oldest waiter may try; whoever is quicker gets it.
//!
//! Tunable: `interval`, the switch interval (CPython's default of 5 ms, or what the program sets).
//!
//! Pathology: the convoy. An I/O-bound thread pays one interval for each blocking call while a
//! CPU-bound one runs. It promises no bound: a thread that gives the lock up and wants it back at
//! once is quicker than a waiter that has to wake up.

use crate::queue::Queue;
use crate::slots::{QueueId, Slots};
use crate::{Action, Actions, Event, Nanos, Policy, Slot, WaiterId};

/// CPython's `DEFAULT_INTERVAL`.
pub const DEFAULT_INTERVAL: Nanos = Nanos::from_millis(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Params {
    /// `None`: what the program itself has set.
    pub interval: Option<Nanos>,
}

#[derive(Debug)]
pub struct Timeout<'a> {
    slots: Slots<'a>,
    waiting: Queue,
    fixed: Option<Nanos>,
    interval: Nanos,
    switches: u64,
    last: Option<WaiterId>,
    held: bool,
}

impl<'a> Timeout<'a> {
    pub fn new(params: Params, slots: &'a mut [Slot]) -> Timeout<'a> {
        Timeout {
            slots: Slots::new(slots),
            waiting: Queue::new(QueueId::READY),
            fixed: params.interval,
            interval: params.interval.unwrap_or(DEFAULT_INTERVAL),
            switches: 0,
            last: None,
            held: false,
        }
    }

    fn wait_an_interval(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        let at = now.after(self.interval);
        let slot = self.slots.at_mut(who);
        slot.mark = self.switches;
        actions.push(Action::Timer { who, at });
    }
}

impl Policy for Timeout<'_> {
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        match event {
            Event::Start { who, priority } => {
                self.waiting.remove(&mut self.slots, who);
                self.slots.start(who, priority);
            }
            Event::Interval { length } => self.interval = self.fixed.unwrap_or(length),
            Event::Arrive { who } if self.slots.has(who) => {
                if !self.waiting.holds(&self.slots, who) {
                    self.waiting.push_back(&mut self.slots, who);
                }
                self.wait_an_interval(now, who, actions);
            }
            Event::Acquire { who } => {
                self.waiting.remove(&mut self.slots, who);
                self.held = true;
                if self.last != Some(who) {
                    self.switches += 1;
                    self.last = Some(who);
                }
            }
            Event::Expire { who } if self.waiting.holds(&self.slots, who) => {
                if !self.held {
                    actions.push(Action::Wake { who });
                } else if self.slots.at(who).mark == self.switches {
                    actions.push(Action::Ask { who });
                } else {
                    self.wait_an_interval(now, who, actions);
                }
            }
            Event::Release { .. } => {
                self.held = false;
                if let Some(who) = self.waiting.head() {
                    actions.push(Action::Wake { who });
                }
            }
            Event::Leave { who } => {
                let was_head = self.waiting.head() == Some(who);
                self.waiting.remove(&mut self.slots, who);
                // The one that left may have been the one that a release woke.
                if let Some(next) = self.waiting.head().filter(|_| was_head && !self.held) {
                    actions.push(Action::Wake { who: next });
                }
            }
            Event::Made { .. }
            | Event::Woken { .. }
            | Event::Arrive { .. }
            | Event::Expire { .. } => {}
        }
    }

    /// None: whoever comes back quickly may take the lock before the waiter that was woken, each
    /// time anew.
    fn bound(&self, _threads: u32, _check: Nanos) -> Option<Nanos> {
        None
    }
}
