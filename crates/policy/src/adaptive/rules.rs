//! What `adaptive` reads off its state: who goes first, and when a waiter may ask. Nothing here
//! changes anything.

use super::{Adaptive, Hold};
use crate::slots::QueueId;
use crate::{Nanos, WaiterId};

impl Adaptive<'_> {
    pub(super) fn clock(&self, now: Nanos) -> u64 {
        self.clock.saturating_add(now.since(self.clock_from).0)
    }

    pub(super) fn credit(&self, now: Nanos, who: WaiterId) -> Nanos {
        match self.slots.at(who).queue {
            QueueId::SPENT | QueueId::KEPT => return self.slots.at(who).kept,
            _ => {}
        }
        let lag = self.clock(now).saturating_sub(self.slots.at(who).mark);
        Nanos(lag.min(self.params.credit.0))
    }

    pub(super) fn waits(&self, who: WaiterId) -> bool {
        self.slots.at(who).queue != QueueId::NONE
    }

    /// Whether the owner of the slice was forced out of it just now, and is on its way back.
    pub(super) fn returns(&self, now: Nanos) -> bool {
        self.turn.map(|owner| self.slots.at(owner)).is_some_and(|owner| {
            let fresh = now.since(owner.released_at) < self.params.wakeup;
            owner.forced && owner.queue == QueueId::NONE && fresh
        })
    }

    /// Whose slice goes on next: the one that was interrupted, else whoever was forced out first.
    pub(super) fn next_slice(&self) -> Option<WaiterId> {
        self.turn
            .filter(|&who| self.waits(who) && self.turn_used < self.params.slice)
            .or_else(|| self.spent.head())
    }

    /// Who waits with the most credit.
    pub(super) fn richest(&self, now: Nanos) -> Option<WaiterId> {
        match (self.ready.head(), self.kept.head()) {
            (Some(ready), Some(kept)) if self.credit(now, kept) > self.credit(now, ready) => {
                Some(kept)
            }
            (None, kept) => kept,
            (ready, _) => ready,
        }
    }

    /// Who gets a free lock, or after whoever has it while this one wakes up.
    pub(super) fn next(&self, now: Nanos) -> Option<WaiterId> {
        let richest = self.richest(now);
        match (richest, self.next_slice()) {
            (Some(rich), Some(_)) if self.credit(now, rich) >= self.params.wakeup => Some(rich),
            (_, Some(slice)) => Some(slice),
            (rich, None) => rich,
        }
    }

    /// When `who` may ask `hold` to drop the lock, if nothing else happens before.
    pub(super) fn due(&self, now: Nanos, hold: &Hold, who: WaiterId) -> Nanos {
        let credit_ends = hold.since.after(hold.credit);
        let of_slice = if self.turn == Some(hold.who) {
            // The slice is counted from the end of the holder's credit.
            credit_ends.after(Nanos(self.params.slice.0.saturating_sub(self.turn_used.0)))
        } else {
            credit_ends.after(self.params.guard)
        };
        // The difference between the two credits grows as fast as time: first the holder's falls;
        // then, with the clock running again, that of a waiter who earns rises.
        let credit = self.credit(now, who);
        let earns = self.ready.holds(&self.slots, who);
        let at = if earns || credit >= self.params.wakeup {
            let holders = Nanos(hold.credit.0.saturating_sub(now.since(hold.since).0));
            let missing = self.params.wakeup.0.saturating_add(holders.0).saturating_sub(credit.0);
            now.after(Nanos(missing)).min(of_slice)
        } else {
            of_slice
        };
        // Whoever lives on its credit is likely to be done soon, and may have woken `who` itself: a
        // worker that hands over a result still has to say that it is idle.
        let has_credit = self.turn != Some(hold.who) && hold.credit >= self.params.wakeup;
        let arrived = self.slots.at(who).arrived_at;
        let at = if self.is_one_of_its_own(hold, who) || (has_credit && self.slots.at(who).inside) {
            at.max(of_slice)
        } else if has_credit {
            at.max(arrived.after(self.params.guard))
        } else if self.needs(hold.who) < self.params.wakeup {
            // It has none left, but does not compute either: it gives the lock up by itself.
            at.max(hold.since.min(arrived).after(self.params.guard))
        } else {
            at
        };
        match self.hands_off {
            Some(interval) => at.max(hold.since.after(interval)),
            None => at,
        }
    }

    /// The holder itself has woken `who`, which has come in this very hold: nobody outside waits for it.
    fn is_one_of_its_own(&self, hold: &Hold, who: WaiterId) -> bool {
        let slot = self.slots.at(who);
        slot.woken_by == hold.who.0.wrapping_add(1) && slot.arrived_at >= hold.since
    }

    /// Only the first of each queue and the owner of the slice set their timers anew: they are the
    /// ones that can be next. A timer that is too early is set anew when it runs out.
    pub(super) fn keeps_timer(&self, who: WaiterId) -> bool {
        self.heads().contains(&Some(who))
    }

    pub(super) fn heads(&self) -> [Option<WaiterId>; 3] {
        [self.ready.head(), self.kept.head(), self.next_slice()]
    }

    /// It lives on no credit: it holds the lock without, or was forced out without.
    pub(super) fn has_no_credit(&self, who: WaiterId) -> bool {
        match self.hold {
            Some(hold) if hold.who == who => hold.credit < self.params.wakeup,
            _ => self.spent.holds(&self.slots, who),
        }
    }

    /// For how long it needs the lock between two real absences.
    pub(super) fn needs(&self, who: WaiterId) -> Nanos {
        let slot = self.slots.at(who);
        slot.burst.max(slot.burst_now)
    }

    /// A request is out for so long that the holder cannot have heard it: those behind the first
    /// of each queue ask too, one more each slice, and whoever comes.
    pub(super) fn unheard(&self, now: Nanos) -> bool {
        let asked = self.hold.and_then(|hold| hold.asked);
        asked.is_some_and(|asked| asked.after(self.params.slice) <= now)
    }
}
