//! A forced switch: whoever was made to give the lock up waits until another thread has had it.

use deconvoy_policy::Observer;
use deconvoy_policy::driver::{LONGEST_SLEEP, OUT_OF_THE_WAY, SWITCH_LINGER};
use deconvoy_policy::home::{Keep, Next};

use crate::engine::{Placed, Sim};
use crate::thread::{On, State, Todo};

impl<O: Observer + Placed> Sim<'_, O> {
    /// Lets those go on who were made to give the lock up.
    pub(crate) fn announce_taken(&mut self) {
        while let Some(who) = self.lock.forced.pop() {
            let calls = match self.threads[who as usize].todo {
                Todo::Yield { calls } | Todo::YieldSpin { calls } => calls,
                other => panic!("{who} was made to give way, and is to {other:?}"),
            };
            match self.threads[who as usize].state {
                State::Blocked(_) => self.wake_up(who, Todo::Yield { calls }),
                _ => self.redirect(who, self.costs.spin_ns, Todo::Yield { calls }),
            }
        }
    }

    /// Waits until another one has had the lock.
    pub(crate) fn lets_another(&mut self, thread: u32, calls: bool) {
        let now = self.now;
        if self.lock.taken != self.threads[thread as usize].taken {
            return self.goes_on(thread, calls);
        }
        match self.lock.next {
            Next::IsAwake => {
                self.lock.forced.push(thread);
                self.will(thread, SWITCH_LINGER.0, Todo::YieldSpin { calls });
            }
            Next::SharesTheCore => {
                let keep = self.home.keep_of_last();
                let mine = self.thread(thread);
                mine.keep = keep;
                mine.nap = (mine.nap * 2).clamp(OUT_OF_THE_WAY.0, LONGEST_SLEEP.0);
                let until = now + mine.nap + self.draw(|costs| costs.timer_ns);
                self.agenda.set(self.place_of_thread(thread), until);
                let work = self.draw(|costs| costs.call_ns);
                self.will(thread, work, Todo::Yield { calls });
                self.leave_core(thread, State::Blocked(On::Switch { polls: true }));
            }
            Next::Sleeps => {
                self.lock.forced.push(thread);
                self.sleeps_meanwhile(thread, calls);
            }
        }
    }

    pub(crate) fn stops_yielding(&mut self, thread: u32, calls: bool) {
        if self.lock.taken != self.threads[thread as usize].taken {
            return self.goes_on(thread, calls);
        }
        self.sleeps_meanwhile(thread, calls);
    }

    fn sleeps_meanwhile(&mut self, thread: u32, calls: bool) {
        self.will(thread, self.costs.acquire_ns, Todo::Yield { calls });
        self.leave_core(thread, State::Blocked(On::Switch { polls: false }));
    }

    fn goes_on(&mut self, thread: u32, calls: bool) {
        self.settle(thread, Keep::Anywhere);
        if calls {
            self.makes_call(thread);
        } else {
            self.will(thread, self.acquire_ns(thread), Todo::Acquire);
        }
    }
}
