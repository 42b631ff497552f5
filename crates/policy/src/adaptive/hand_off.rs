//! Who is told that the lock is free.

use super::Adaptive;
use crate::{Action, Actions, WaiterId};

impl Adaptive<'_> {
    pub(super) fn grant(&mut self, who: WaiterId, actions: &mut Actions) {
        self.recall(who, actions);
        self.granted = Some(who);
        actions.push(Action::Grant { who });
    }

    pub(super) fn wake(&mut self, who: WaiterId, actions: &mut Actions) {
        self.recall(who, actions);
        self.granted = Some(who);
        self.woken = Some(who);
        actions.push(Action::Wake { who });
    }

    /// Whoever was woken for an earlier release and comes only now, from behind another thread on
    /// its core, is not to take the lock before `next` if it then computes for a slice.
    fn recall(&mut self, next: WaiterId, actions: &mut Actions) {
        let late =
            self.woken.take().filter(|&who| who != next && !self.ready.holds(&self.slots, who));
        if let Some(who) = late {
            actions.push(Action::Recall { who });
        }
    }
}
