//! Where the threads of a steered lock run, and who stays awake.

use deconvoy_policy::home::{Keep, Place};
use deconvoy_policy::{Nanos, Observer, Policy, WaiterId};

use super::Steer;

impl<O: Observer> Steer<'_, O> {
    /// Until when the policy has `who` stay awake; a point in the past: it may sleep.
    pub fn stays_awake_until(&self, who: WaiterId) -> Nanos {
        self.waiting.get(who.0 as usize).map_or(Nanos::ZERO, |one| Nanos(one.linger))
    }

    /// The place for the calling thread `who`, which is about to wait, and whether it is to go there
    /// first.
    pub fn place_to_wait(&self, now: Nanos, who: WaiterId, here: Option<u32>) -> (Place, bool) {
        let place = self.cores.place(self.policy.computes(who), self.holder.is_some());
        self.cores.place_here(here, || now, place)
    }

    /// The calling thread went there, from `begun` to `ended`.
    pub fn moved(&mut self, begun: Nanos, ended: Nanos) {
        self.cores.moved(begun, ended);
    }

    /// Where one that is woken to take the free lock is to run until it has it: one that computes on
    /// the core of the last one that did (`docs/design/003-home-core.md`), all others anywhere.
    pub fn keep_of(&self, who: WaiterId) -> Keep {
        let computes = self.policy.computes(who);
        self.cores.place(computes, !computes).keep
    }

    /// The holder runs on the core `here`.
    pub fn runs_on(&mut self, here: u32) {
        self.cores.seen(here);
    }

    /// Where one is to run that is woken to ask the holder, by a thread on the core `here` which is
    /// about to sleep: there, as the holder does not run there now, unless it was driven off by that
    /// thread. Where it runs is what is known last, so each of several tries is the other way.
    pub fn keep_of_asker(&self, here: Option<u32>, tries: u32) -> Keep {
        let (Keep::Off(home), Some(here)) =
            (self.cores.place(false, self.holder.is_some()).keep, here)
        else {
            return Keep::Anywhere;
        };
        if (here == home) == tries.is_multiple_of(2) { Keep::Off(here) } else { Keep::On(here) }
    }
}
