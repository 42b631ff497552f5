//! A thread that was made to do another's work starts with half of that one's credit: a server
//! that begins a thread for each request has earned what the thread needs. Credit is moved, not
//! made, so many threads that start together share what there is.

use super::Adaptive;
use crate::slots::QueueId;
use crate::{Nanos, WaiterId};

impl Adaptive<'_> {
    /// A new thread may begin at once, but has to earn or inherit the rest: many that start
    /// together and compute would else go before everybody for a slice each.
    pub(super) fn start(&mut self, now: Nanos, who: WaiterId, priority: i8) {
        self.forget(who);
        self.slots.start(who, priority);
        self.set_credit(now, who, self.params.wakeup);
    }

    /// `who` was made by `by`, and holds the lock for the first time in a moment.
    pub(super) fn inherit(&mut self, now: Nanos, who: WaiterId, by: WaiterId) {
        let computes = |of| matches!(self.slots.at(of).queue, QueueId::SPENT | QueueId::KEPT);
        let (has, half) = (self.credit(now, by), Nanos(self.credit(now, by).0 / 2));
        if who == by || computes(who) || computes(by) || half <= self.credit(now, who) {
            return;
        }
        self.move_credit(now, by, Nanos(has.0 - half.0));
        self.move_credit(now, who, half);
    }

    fn move_credit(&mut self, now: Nanos, who: WaiterId, credit: Nanos) {
        let waits = self.ready.holds(&self.slots, who);
        self.ready.remove(&mut self.slots, who);
        self.set_credit(now, who, credit);
        // What it comes back with if it was forced out a moment ago.
        let slot = self.slots.at_mut(who);
        slot.kept = slot.kept.min(credit);
        if waits {
            self.enqueue(now, who);
        }
    }
}
