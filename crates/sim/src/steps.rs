//! What a thread does, step by step: it computes with the lock, and makes calls without.

use deconvoy_mix::{Amount, Mix, Step};
use deconvoy_policy::Observer;

use crate::agenda::NEVER;
use crate::engine::{Placed, Sim};
use crate::schedule::Waker;
use crate::thread::{On, State, Todo};

/// A step, with the number of its channel.
pub(crate) type Play = Step<u32>;

pub(crate) fn plays(mix: &Mix) -> Vec<Vec<Play>> {
    let channels = mix.channels();
    let number = |name: &str| channels.get(name).map_or(0, |&number| number as u32);
    let play = |step: &Step| step.with_channels(number);
    mix.threads.iter().map(|group| group.steps.iter().map(play).collect()).collect()
}

impl<O: Observer + Placed> Sim<'_, O> {
    fn has_gil(&self, thread: u32) -> bool {
        self.groups[self.threads[thread as usize].group as usize].gil
    }

    fn step_of(&self, thread: u32) -> Play {
        let thread = &self.threads[thread as usize];
        self.steps[thread.group as usize][thread.step as usize]
    }

    pub(crate) fn begin_step(&mut self, thread: u32) {
        let play = self.step_of(thread);
        if self.has_gil(thread) && !self.holds(thread) {
            // It comes from a call, or begins: what it runs it runs with the lock.
            return self.will(thread, self.acquire_ns(thread), Todo::Acquire);
        }
        match play {
            Play::Compute(amount) => {
                // It may have given the lock up in the middle of it.
                if self.threads[thread as usize].compute == 0 {
                    let work = match amount {
                        Amount::Forever => NEVER,
                        Amount::Of(time) => time.draw(&mut self.random),
                    };
                    self.thread(thread).compute = work;
                }
                self.computes(thread);
            }
            Play::Hog(time) => {
                let work = time.draw(&mut self.random);
                self.will(thread, work, Todo::Finish);
            }
            Play::Send(_) => {
                let now = self.now;
                self.thread(thread).sent = now;
                self.call(thread);
            }
            _ => self.call(thread),
        }
    }

    /// Makes the call of its step, for which it gives the lock up if it has it.
    fn call(&mut self, thread: u32) {
        if self.holds(thread) {
            self.will(thread, self.release_ns(thread), Todo::Call);
        } else {
            self.makes_call(thread);
        }
    }

    pub(crate) fn leave_for_call(&mut self, thread: u32) {
        let forced = self.release(thread);
        if forced {
            self.will(thread, 0, Todo::Yield { calls: true });
        } else {
            self.makes_call(thread);
        }
    }

    /// The processor's part of the call.
    pub(crate) fn makes_call(&mut self, thread: u32) {
        let work = match self.step_of(thread) {
            Play::Native(time) => time.draw(&mut self.random),
            Play::Send(_) => self.draw(|costs| costs.send_ns),
            Play::Receive(_) => self.draw(|costs| costs.receive_ns),
            _ => self.draw(|costs| costs.call_ns),
        };
        self.will(thread, work, Todo::Called);
    }

    pub(crate) fn called(&mut self, thread: u32) {
        // What is left to do when it is back.
        self.will(thread, 0, Todo::Finish);
        match self.step_of(thread) {
            Play::Block(time) => {
                let off = time.draw(&mut self.random);
                if off > 0 {
                    self.block_until(thread, self.now.saturating_add(off));
                }
            }
            Play::Sleep(time) => {
                let off = time.draw(&mut self.random) + self.draw(|costs| costs.timer_ns);
                self.block_until(thread, self.now.saturating_add(off));
            }
            Play::Send(channel) => {
                let place = &mut self.channels[channel as usize];
                match place.waiting.pop_front() {
                    Some(receiver) => {
                        self.unblock(receiver, Waker::Sender(self.playing));
                    }
                    None => place.messages += 1,
                }
            }
            Play::Receive(channel) => {
                let place = &mut self.channels[channel as usize];
                if place.messages > 0 {
                    place.messages -= 1;
                } else {
                    place.waiting.push_back(thread);
                    self.block(thread, On::Channel(channel));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn next_step(&mut self, thread: u32) {
        let now = self.now;
        let receives = matches!(self.step_of(thread), Play::Receive(_));
        let mine = &mut self.threads[thread as usize];
        let steps = &self.steps[mine.group as usize];
        // An answer may come in several parts.
        let goes_on = matches!(steps.get(mine.step as usize + 1), Some(Play::Receive(_)));
        let group = &mut self.groups[mine.group as usize];
        if receives && !goes_on && mine.sent != NEVER {
            group.answers.note(now - mine.sent);
            mine.sent = NEVER;
        }
        mine.step += 1;
        if mine.step as usize == steps.len() {
            mine.step = 0;
            mine.done += 1;
            if mine.rounds != u32::MAX {
                mine.rounds -= 1;
            }
        }
        if mine.rounds == 0 {
            return self.ends(thread);
        }
        self.will(thread, 0, Todo::Begin);
    }

    fn ends(&mut self, thread: u32) {
        if self.holds(thread) {
            self.release(thread);
        }
        self.left = self.left.map(|left| left - 1);
        let now = self.now;
        let group = self.threads[thread as usize].group as usize;
        self.groups[group].ended_at = now;
        self.leave_core(thread, State::Ended);
    }

    /// Runs what is left to compute of its step, as far as it may.
    fn computes(&mut self, thread: u32) {
        let check = self.costs.check_ns;
        let asked = self.lock.request;
        let mine = self.thread(thread);
        let mut work = mine.compute.min(mine.quantum);
        if asked {
            work = work.min(check);
        }
        self.will(thread, work, Todo::Compute);
    }

    pub(crate) fn computed(&mut self, thread: u32) {
        let (compute, quantum) = {
            let mine = &self.threads[thread as usize];
            (mine.compute, mine.quantum)
        };
        if compute == 0 {
            self.will(thread, 0, Todo::Finish);
        } else if self.lock.request || quantum == 0 {
            self.gives_way(thread);
        } else {
            self.computes(thread);
        }
    }

    fn gives_way(&mut self, thread: u32) {
        let release = self.release_ns(thread);
        if self.release(thread) {
            self.will(thread, release, Todo::Yield { calls: false });
        } else {
            self.will(thread, release + self.acquire_ns(thread), Todo::Acquire);
        }
    }
}
