//! Who stays awake, and whether that pays.

use super::{Adaptive, Hold, Lingerer};
use crate::{Action, Actions, Nanos, WaiterId};

/// Lingering that fails this often in a row is tried only now and then.
const LINGER_FAILURES: u8 = 4;
const LINGER_PROBE: u8 = 64;

impl Adaptive<'_> {
    pub(super) fn linger(
        &mut self,
        now: Nanos,
        who: WaiterId,
        until: Nanos,
        actions: &mut Actions,
    ) {
        if !self.parallel {
            return;
        }
        if self.linger_failures >= LINGER_FAILURES {
            self.linger_skipped += 1;
            if self.linger_skipped < LINGER_PROBE {
                return;
            }
            self.linger_skipped = 0;
        }
        if let Some(other) = self.lingerer.filter(|other| other.who != who && other.until > now) {
            actions.push(Action::Linger { who: other.who, until: Nanos::ZERO });
        }
        self.lingerer = Some(Lingerer { who, until });
        actions.push(Action::Linger { who, until });
    }

    pub(super) fn score_linger(&mut self, now: Nanos, taker: WaiterId) {
        match self.lingerer {
            Some(lingerer) if lingerer.who == taker => {
                self.lingerer = None;
                self.linger_failures =
                    if now <= lingerer.until { 0 } else { self.linger_failures.saturating_add(1) };
            }
            _ => {}
        }
    }

    /// Whoever arrives stays awake when the holder needs the lock only for a moment, as far as that
    /// is known: one that was interrupted in its slice, and one behind a holder that lives on its
    /// credit, if nobody else is awake. To sleep would take longer, and its timer alone costs a
    /// virtual machine two exits.
    pub(super) fn linger_for_a_moment(
        &mut self,
        now: Nanos,
        hold: &Hold,
        who: WaiterId,
        actions: &mut Actions,
    ) {
        let expected = self.slots.at(hold.who).burst;
        let interrupted = self.turn == Some(who) && hold.credit.0 > 0;
        let alone = self.lingerer.is_none_or(|other| other.until <= now);
        let moment = interrupted || (hold.credit >= self.params.wakeup && alone);
        if moment && expected < self.params.linger {
            let until = now.after(self.params.linger).after(expected);
            self.linger(now, who, until, actions);
        }
    }
}
