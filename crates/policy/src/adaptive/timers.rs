//! When each waiter looks at the lock by itself: the timers that it is given, and what it does when
//! it is due.

use super::Adaptive;
use crate::queue::Queue;
use crate::{Action, Actions, Nanos, WaiterId};

/// Nobody looks again sooner than this, whatever the parameters.
const SHORTEST_LOOK: Nanos = Nanos::from_micros(50);

impl Adaptive<'_> {
    /// `who` must act on the present hold: ask now, or set a timer for when it is due.
    pub(super) fn consider(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        let Some(hold) = self.hold else { return };
        // A request can be lost on its way to the holder: it is repeated after a slice. And it is
        // the asker's alone: CPython 3.9 to 3.12 hand it to the asker's own interpreter, so that a
        // holder of another interpreter that shares the lock hears only its own kin.
        let mine = self.slots.at(who).asked_at;
        let at = if hold.asked.is_some() && mine >= hold.since {
            mine.after(self.params.slice)
        } else {
            self.due(now, &hold, who)
        };
        if at <= now {
            let unheard = self.unheard(now);
            if let Some(hold) = &mut self.hold {
                hold.asked = hold.asked.or(Some(now));
            }
            self.slots.at_mut(who).asked_at = now;
            actions.push(Action::Ask { who });
            self.linger(now, who, now, now.after(self.params.linger), actions);
            self.set_timer(who, now.after(self.params.slice), actions);
            let behind = Queue::behind(&self.slots, who).filter(|_| unheard);
            for other in self.heads().into_iter().chain([behind]).flatten() {
                if other != who && self.slots.at(other).timer == Nanos::ZERO {
                    let at = self.due(now, &hold, other);
                    self.set_timer(other, at, actions);
                }
            }
        } else {
            self.set_timer(who, at, actions);
        }
    }

    pub(super) fn set_timer(&mut self, who: WaiterId, at: Nanos, actions: &mut Actions) {
        self.slots.at_mut(who).timer = at;
        actions.push(Action::Timer { who, at });
    }

    /// So much later than it is due a waiter may look, rather than be woken to be told. With what a
    /// holder may finish, that is less than a request is worth: nobody earns a turn by it.
    fn slack(&self) -> Nanos {
        Nanos(self.params.wakeup.0.saturating_sub(self.params.guard.0.saturating_mul(2)))
    }

    /// One that has waited for longer than that anyway may be as late, up to a slice, where the holder
    /// has never computed so far: of many threads that wait for each other none is woken all the time
    /// to look for nothing.
    fn patience(&self, now: Nanos, who: WaiterId) -> Nanos {
        self.waited(now, who).min(self.params.slice).max(self.slack())
    }

    fn waited(&self, now: Nanos, who: WaiterId) -> Nanos {
        now.since(self.slots.at(who).arrived_at)
    }

    /// `who` need not ask yet, and may have to when others are gone. It looks for itself then: a
    /// sleeper that had no timer would have to be woken to be given one. After as long as it has
    /// waited: a thousand threads that looked every few milliseconds would do little else, and keep
    /// the holder from its core.
    pub(super) fn look_later(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        let later = self.waited(now, who).max(self.slack()).max(SHORTEST_LOOK);
        self.set_timer(who, now.after(later), actions);
    }

    /// The lock has a new holder: whoever may ask it first needs a timer that is early enough. It is
    /// not woken up to ask a little sooner one that will give the lock up by itself.
    pub(super) fn watch(&mut self, now: Nanos, actions: &mut Actions) {
        let Some(hold) = self.hold else { return };
        let due = |who| (self.due(now, &hold, who), who);
        let first = self.heads().into_iter().flatten().map(due).min_by_key(|&(at, _)| at);
        if let Some((at, who)) = first {
            let timer = self.slots.at(who).timer;
            let is_awake = self.woken == Some(who);
            let slack = if is_awake || self.needs(hold.who) >= self.params.wakeup {
                Nanos::ZERO
            } else if self.slots.at(hold.who).burst == Nanos::ZERO {
                // It may compute: it has not been elsewhere yet.
                self.slack()
            } else {
                self.patience(now, who)
            };
            if timer == Nanos::ZERO || at.after(slack) < timer {
                self.set_timer(who, at, actions);
            }
        }
    }
}
