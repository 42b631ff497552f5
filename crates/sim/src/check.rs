//! What must hold at every event, whatever is simulated.

use deconvoy_policy::Observer;

use crate::agenda::NEVER;
use crate::engine::{Hold, Placed, Sim};
use crate::thread::{On, State};

/// With so many threads or fewer, each is looked at at each event; with more, now and then.
const FEW: usize = 16;
const NOW_AND_THEN: u64 = 4_096;

impl<O: Observer + Placed> Sim<'_, O> {
    pub(crate) fn check(&self) {
        if let Hold::Held(holder) = self.lock.hold {
            let state = self.threads[holder as usize].state;
            assert!(
                matches!(state, State::Running | State::Ready),
                "the holder {holder} is {state:?}"
            );
        }
        assert!(self.debt == 0, "a debt that nobody pays: {}", self.debt);
        if self.threads.len() <= FEW || self.totals.events.is_multiple_of(NOW_AND_THEN) {
            self.check_all();
        }
    }

    /// Looks at every thread and every core.
    pub(crate) fn check_all(&self) {
        let mut waiting = 0;
        let mut moves = 0;
        let mut queued = 0;
        for (number, thread) in self.threads.iter().enumerate() {
            let core = &self.cores[thread.core as usize];
            let runs = core.current == Some(number as u32);
            assert_eq!(runs, thread.state == State::Running, "thread {number}: {:?}", thread.state);
            queued += usize::from(thread.state == State::Ready);
            if thread.inside {
                waiting += 1;
                let asleep = thread.state == State::Blocked(On::Gate);
                moves += u32::from(!asleep || thread.woken || thread.timer != NEVER);
            }
        }
        assert_eq!(queued, self.queued, "threads that are ready");
        assert_eq!(queued, self.cores.iter().map(|core| core.queued()).sum::<usize>());
        assert_eq!(waiting, self.lock.waiting, "threads that wait");
        if waiting > 0 && !matches!(self.lock.hold, Hold::Held(_)) {
            assert!(moves > 0, "the lock is {:?}, threads wait, and nothing moves", self.lock.hold);
        }
    }
}
