//! The machine of the four designs of 2010, which differ in two things: what makes a holder give
//! the lock up, and whether it may take it back before the waiter that is next.
//!
//! | | the releaser may barge | the lock is handed to the oldest waiter |
//! |---|---|---|
//! | a timer asks | [`crate::mutex`] | [`crate::timer`] |
//! | every so many instructions | [`crate::ticks`] | [`crate::fifo`] |
//!
//! A request of a timer thread is made here by the waiter that is next: nobody else is there to
//! make it, and without a waiter it would change nothing.

use crate::queue::Queue;
use crate::slots::{QueueId, Slots};
use crate::{Action, Actions, Driver, Event, Nanos, Policy, Slot, WaiterId};

/// What one instruction counts for where nobody counts them: a bytecode of CPython on the
/// machines of 2010 and today takes 5 to 15 ns.
const INSTRUCTION: Nanos = Nanos(10);

/// What becomes of the lock as it is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Succession {
    /// Whoever is quickest has it, which is the one who gave it up.
    Barge,
    /// It is kept for the oldest waiter.
    HandOff,
}

#[derive(Debug)]
pub struct Classic<'a> {
    slots: Slots<'a>,
    waiting: Queue,
    next: Succession,
    /// A timer asks, rather than that instructions are counted or guessed at.
    timed: bool,
    /// The waiter that is next asks at multiples of this, from the first event on; `None`: the
    /// driver counts instructions.
    period: Option<Nanos>,
    begun: Option<Nanos>,
    held: bool,
}

impl<'a> Classic<'a> {
    /// Asked by a timer.
    pub(crate) fn timed(period: Nanos, next: Succession, slots: &'a mut [Slot]) -> Classic<'a> {
        Classic {
            slots: Slots::new(slots),
            waiting: Queue::new(QueueId::READY),
            next,
            timed: true,
            period: Some(period),
            begun: None,
            held: false,
        }
    }

    /// Given up every so many instructions, or asked so often where nobody counts them.
    pub(crate) fn counted(
        instructions: u32,
        next: Succession,
        driver: Driver,
        slots: &'a mut [Slot],
    ) -> Classic<'a> {
        let period = Nanos(INSTRUCTION.0.saturating_mul(u64::from(instructions)));
        let period = (!driver.counts_instructions).then_some(period);
        Classic { timed: false, period, ..Classic::timed(Nanos::MAX, next, slots) }
    }

    fn give(&self, actions: &mut Actions) {
        if let Some(who) = self.waiting.head() {
            actions.push(match self.next {
                Succession::Barge => Action::Wake { who },
                Succession::HandOff => Action::Grant { who },
            });
        }
    }

    /// The waiter that is next asks at the next tick of the clock.
    fn time_head(&mut self, now: Nanos, actions: &mut Actions) {
        let begun = *self.begun.get_or_insert(now);
        let (Some(period), Some(who)) = (self.period, self.waiting.head()) else { return };
        let slot = self.slots.at_mut(who);
        if slot.timer <= now {
            let ticks = now.since(begun).0 / period.0.max(1) + 1;
            slot.timer = begun.after(Nanos(ticks.saturating_mul(period.0)));
            actions.push(Action::Timer { who, at: slot.timer });
        }
    }

    fn remove(&mut self, who: WaiterId) {
        self.waiting.remove(&mut self.slots, who);
        self.slots.at_mut(who).timer = Nanos::ZERO;
    }
}

impl Policy for Classic<'_> {
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        match event {
            Event::Start { who, priority } => {
                self.waiting.remove(&mut self.slots, who);
                self.slots.start(who, priority);
            }
            Event::Arrive { who } if self.slots.has(who) => {
                if !self.waiting.holds(&self.slots, who) {
                    self.waiting.push_back(&mut self.slots, who);
                }
                // What it had set is forgotten where it waits.
                self.slots.at_mut(who).timer = Nanos::ZERO;
                if self.waiting.head() == Some(who) {
                    self.time_head(now, actions);
                }
            }
            Event::Acquire { who } => {
                self.remove(who);
                self.held = true;
                self.time_head(now, actions);
            }
            Event::Release { .. } => {
                self.held = false;
                self.give(actions);
            }
            Event::Expire { who } if self.waiting.holds(&self.slots, who) => {
                self.slots.at_mut(who).timer = Nanos::ZERO;
                if !self.held {
                    self.give(actions);
                } else if self.waiting.head() == Some(who) {
                    actions.push(Action::Ask { who });
                }
                self.time_head(now, actions);
            }
            Event::Leave { who } => {
                let was_head = self.waiting.head() == Some(who);
                self.remove(who);
                if was_head && !self.held {
                    self.give(actions);
                }
                self.time_head(now, actions);
            }
            Event::Made { .. }
            | Event::Woken { .. }
            | Event::Interval { .. }
            | Event::Arrive { .. }
            | Event::Expire { .. } => {}
        }
    }

    fn forces_switch(&self) -> bool {
        false
    }

    /// Where a timer asks and the lock is handed on, each of those in front keeps it until the next
    /// tick at most. Whoever barges may do so for ever; and a policy does not know how long so many
    /// instructions take.
    fn bound(&self, threads: u32, check: Nanos) -> Option<Nanos> {
        let period = self.period.filter(|_| self.timed && self.next == Succession::HandOff)?;
        Some(Nanos(period.after(check).0.saturating_mul(u64::from(threads))))
    }
}
