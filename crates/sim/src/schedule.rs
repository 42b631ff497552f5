//! What the operating system does: who runs on which core, and when that changes.

use deconvoy_policy::Observer;
use deconvoy_policy::home::Keep;

use rand::RngCore;

use crate::agenda::NEVER;
use crate::cores::{allows, next_tick};
use crate::costs::ASLEEP_NS;
use crate::engine::{Placed, Sim};
use crate::thread::{On, State, Todo};

/// Who brings a blocked thread back, and on which core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waker {
    /// Its timer.
    Nobody,
    Thread(Option<u32>),
    /// A thread that has sent it a message.
    Sender(Option<u32>),
}

impl<O: Observer + Placed> Sim<'_, O> {
    /// A core's thread has done its work, the core is out of idleness, or a tick has come.
    pub(crate) fn core_is_due(&mut self, core: u32) {
        let Some(thread) = self.cores[core as usize].current else {
            return self.pick(core, 0);
        };
        self.account(core);
        if self.threads[thread as usize].work == 0 {
            self.playing = Some(core);
            self.play(thread);
            self.playing = None;
        }
        if self.cores[core as usize].current == Some(thread) {
            if self.gives_core(core, thread) {
                self.requeue(core, thread);
            } else {
                self.set_core(core);
            }
        }
        self.push_to_idle(core);
    }

    /// Takes what a core's thread has run since the last time from what it has to run.
    fn account(&mut self, core: u32) {
        let now = self.now;
        let at = &mut self.cores[core as usize];
        let Some(thread) = at.current else { return };
        if now <= at.since {
            return;
        }
        let ran = now - at.since;
        at.since = now;
        at.ran += ran;
        let thread = &mut self.threads[thread as usize];
        thread.runtime += ran;
        thread.ran += ran;
        let less = |left: u64| if left == NEVER { NEVER } else { left.saturating_sub(ran) };
        thread.work = less(thread.work);
        if thread.todo == Todo::Compute {
            thread.compute = less(thread.compute);
            thread.quantum = less(thread.quantum);
        }
    }

    /// When a core is due next.
    fn set_core(&mut self, core: u32) {
        let at = &self.cores[core as usize];
        let Some(thread) = at.current else { return };
        let from = at.since.max(self.now);
        let mut due = from.saturating_add(self.threads[thread as usize].work);
        if at.queued() > 0 {
            due = due.min(next_tick(self.now, core, self.costs.scheduler.tick_ns));
        }
        self.agenda.set(core, due);
    }

    /// Whether whoever runs on a core is to make way there: at a tick, or because somebody woke up.
    fn gives_core(&mut self, core: u32, thread: u32) -> bool {
        let now = self.now;
        let scheduler = self.costs.scheduler;
        let at = &mut self.cores[core as usize];
        let woke_up = std::mem::replace(&mut at.woke_up, false);
        let Some((least, _)) = at.least() else { return false };
        let ticks = next_tick(now.saturating_sub(1), core, scheduler.tick_ns) == now;
        let had_its_slice = at.ran >= scheduler.slice_ns;
        let runtime = self.threads[thread as usize].runtime;
        let has_run_more = runtime > least.saturating_add(scheduler.wakeup_ns);
        (ticks && had_its_slice && runtime > least)
            || (woke_up && has_run_more && (had_its_slice || scheduler.preempts))
    }

    /// The thread of a core goes back into its queue, and another one runs.
    fn requeue(&mut self, core: u32, thread: u32) {
        self.threads[thread as usize].state = State::Ready;
        self.threads[thread as usize].ready_since = self.now;
        self.totals.preempted += 1;
        let runtime = self.threads[thread as usize].runtime;
        self.cores[core as usize].push(runtime, thread);
        self.queued += 1;
        self.cores[core as usize].current = None;
        let switch = self.draw(|costs| costs.switch_ns);
        self.pick(core, switch);
    }

    /// The thread whose turn it is lets the others of its core go first.
    pub(crate) fn yield_core(&mut self, thread: u32) {
        let core = self.threads[thread as usize].core;
        if let Some((least, _)) = self.cores[core as usize].least() {
            let mine = &mut self.threads[thread as usize];
            mine.runtime = mine.runtime.max(least + 1);
            self.requeue(core, thread);
        }
    }

    /// A core without a thread runs the next one, after `delay`.
    fn pick(&mut self, core: u32, delay: u64) {
        let next = match self.cores[core as usize].pop() {
            Some(thread) => {
                self.queued -= 1;
                Some(thread)
            }
            None => self.pull(core),
        };
        let Some(thread) = next else {
            self.idle.insert(core);
            self.cores[core as usize].idle_since = self.now;
            return self.agenda.clear(core);
        };
        self.idle.remove(core);
        let now = self.now;
        let at = &mut self.cores[core as usize];
        at.current = Some(thread);
        at.since = now + delay;
        at.ran = 0;
        at.woke_up = false;
        at.switches += 1;
        let longest = &mut self.totals.longest_ready_ns;
        let thread = &mut self.threads[thread as usize];
        *longest = (*longest).max(now - thread.ready_since);
        thread.state = State::Running;
        thread.core = core;
        self.set_core(core);
    }

    /// Takes a thread from the longest queue. One that a core wakes up for is left to it.
    fn pull(&mut self, core: u32) -> Option<u32> {
        if self.queued == 0 {
            return None;
        }
        let longest = (0..self.cores.len())
            .filter(|&other| self.cores[other].load() > 1)
            .max_by_key(|&other| self.cores[other].queued())?;
        let threads = &self.threads;
        let thread =
            self.cores[longest].steal(|thread| allows(threads[thread as usize].keep, core))?;
        self.queued -= 1;
        self.change_core(thread, longest as u32, core);
        Some(thread)
    }

    /// At a tick of a core with a queue, an idle one is given of it.
    fn push_to_idle(&mut self, core: u32) {
        let tick = self.costs.scheduler.tick_ns;
        if self.cores[core as usize].queued() == 0
            || next_tick(self.now.saturating_sub(1), core, tick) != self.now
        {
            return;
        }
        let Some(to) = self.idle.find(core, Keep::Off(core)) else { return };
        if self.cores[to as usize].queued() > 0 {
            return;
        }
        let threads = &self.threads;
        let stolen =
            self.cores[core as usize].steal(|thread| allows(threads[thread as usize].keep, to));
        if let Some(thread) = stolen {
            self.change_core(thread, core, to);
            let runtime = self.threads[thread as usize].runtime;
            self.cores[to as usize].push(runtime, thread);
            self.rouse(to);
        }
    }

    /// What a thread has run counts from what others have run on its core.
    fn change_core(&mut self, thread: u32, from: u32, to: u32) {
        let (old, new) = (self.cores[from as usize].floor, self.cores[to as usize].floor);
        let thread = &mut self.threads[thread as usize];
        thread.runtime = thread.runtime.saturating_sub(old).saturating_add(new);
        thread.core = to;
    }

    /// An idle core wakes up; what that costs whoever wakes it.
    fn rouse(&mut self, core: u32) -> u64 {
        self.idle.remove(core);
        // A core that polls is woken by a word in memory, one that sleeps by an interrupt: what is long
        // for the one is long for the other.
        let bits = self.random.next_u32();
        let mut wake = self.costs.idle_wake_ns.at(bits);
        let mut cost = self.costs.wake_ns.at(bits);
        let idle = self.now - self.cores[core as usize].idle_since;
        if idle < ASLEEP_NS {
            let between = |fresh: u64, asleep: u64| {
                let fresh = fresh.min(asleep);
                fresh + (asleep - fresh) * idle / ASLEEP_NS
            };
            wake = between(self.costs.fresh_wake_ns.at(bits), wake);
            cost = between(self.costs.fresh_waker_ns.at(bits), cost);
        }
        self.agenda.set(core, self.now + wake);
        cost
    }

    /// A blocked thread is ready to run, at the cost of the one whose turn it is, if it is woken.
    pub(crate) fn unblock(&mut self, thread: u32, waker: Waker) {
        let place = self.place_of_thread(thread);
        self.agenda.clear(place);
        let cost = self.make_ready(thread, waker);
        if !matches!(waker, Waker::Nobody) {
            self.debt += cost;
        }
    }

    /// A timer goes off on a core: whoever runs there has so much more to do. Those that go off while
    /// the core is busy with another one are looked at on the way.
    pub(crate) fn interrupts(&mut self, core: u32) {
        let Some(thread) = self.cores[core as usize].current else { return };
        self.account(core);
        let whole = self.costs.interrupt_ns;
        let busy = self.cores[core as usize].interrupted_until > self.now;
        let cost = if busy { whole / 10 } else { whole };
        self.cores[core as usize].interrupted_until = self.now + whole;
        let longer = |left: u64| left.saturating_add(cost);
        let thread = &mut self.threads[thread as usize];
        thread.work = longer(thread.work);
        if thread.todo == Todo::Compute {
            thread.compute = longer(thread.compute);
            thread.quantum = longer(thread.quantum);
        }
        self.set_core(core);
    }

    /// What it costs whoever wakes the thread.
    fn make_ready(&mut self, thread: u32, waker: Waker) -> u64 {
        let core = self.select(thread, waker);
        let from = self.threads[thread as usize].core;
        if from != core {
            self.change_core(thread, from, core);
        }
        let (bonus, debt) = (self.costs.scheduler.bonus_ns, self.costs.scheduler.debt_ns);
        let floor = self.cores[core as usize].floor.saturating_sub(bonus);
        let now = self.now;
        let mine = &mut self.threads[thread as usize];
        mine.state = State::Ready;
        mine.ready_since = now;
        mine.runtime = mine.runtime.clamp(floor, floor.saturating_add(bonus + debt));
        let runtime = mine.runtime;
        self.cores[core as usize].push(runtime, thread);
        self.queued += 1;
        if self.idle.contains(core) {
            return self.rouse(core);
        }
        if self.cores[core as usize].current.is_some() {
            self.cores[core as usize].woke_up = true;
            if self.playing != Some(core) || self.cores[core as usize].since > now {
                self.account(core);
                self.looks_soon(core);
            }
        }
        self.draw(|costs| costs.fresh_waker_ns)
    }

    /// A core other than that of the present turn looks who is to run.
    fn looks_soon(&mut self, core: u32) {
        let Some(thread) = self.cores[core as usize].current else { return };
        if self.gives_core(core, thread) {
            self.requeue(core, thread);
        } else {
            self.set_core(core);
        }
    }

    /// Whether the scheduler takes a core for one that is idle, and at its service.
    fn is_free(&self, core: u32) -> bool {
        let scheduler = &self.costs.scheduler;
        let fresh = || self.now - self.cores[core as usize].idle_since < ASLEEP_NS;
        self.idle.contains(core) && (scheduler.sees_idle || fresh())
    }

    /// Where a thread that wakes up goes: its last core, that of its waker, or a free one, as Linux's
    /// `select_task_rq_fair` has it.
    fn select(&self, thread: u32, waker: Waker) -> u32 {
        let mine = &self.threads[thread as usize];
        let (last, keep) = (mine.core, mine.keep);
        if let Keep::On(core) = keep {
            return core;
        }
        let load = |core: u32| self.cores[core as usize].load();
        let here = match waker {
            Waker::Nobody => None,
            Waker::Thread(core) | Waker::Sender(core) => core,
        };
        let target = match here.filter(|&core| allows(keep, core)) {
            // Whoever sends a message is likely to wait for the answer.
            Some(core) if matches!(waker, Waker::Sender(_)) && load(core) <= 1 => core,
            Some(core) if !allows(keep, last) => core,
            Some(core) if !self.is_free(last) && load(core) < load(last) => core,
            _ if allows(keep, last) => last,
            _ => self.any_core(keep),
        };
        if self.is_free(target) {
            return target;
        }
        if allows(keep, last) && self.is_free(last) {
            return last;
        }
        let seen = if self.costs.scheduler.sees_idle { self.idle.find(target, keep) } else { None };
        seen.unwrap_or(target)
    }

    /// The core with the least to do of those that a thread may run on.
    fn any_core(&self, keep: Keep) -> u32 {
        let cores = (0..self.cores.len() as u32).filter(|&core| allows(keep, core));
        cores.min_by_key(|&core| self.cores[core as usize].load()).unwrap_or(0)
    }

    /// The thread whose turn it is stops running.
    pub(crate) fn leave_core(&mut self, thread: u32, state: State) {
        let core = self.threads[thread as usize].core;
        self.threads[thread as usize].state = state;
        self.cores[core as usize].current = None;
        let runtime = self.threads[thread as usize].runtime;
        let at = &mut self.cores[core as usize];
        at.floor = at.floor.max(at.least().map_or(runtime, |(least, _)| least.min(runtime)));
        let owes = std::mem::take(&mut self.debt);
        let switch = self.draw(|costs| costs.switch_ns);
        self.pick(core, switch + owes);
    }

    pub(crate) fn block(&mut self, thread: u32, on: On) {
        self.leave_core(thread, State::Blocked(on));
    }

    pub(crate) fn block_until(&mut self, thread: u32, at: u64) {
        self.agenda.set(self.place_of_thread(thread), at);
        self.block(thread, On::Time);
    }

    /// The thread whose turn it is goes to a core that it is allowed on.
    pub(crate) fn migrate(&mut self, thread: u32) {
        let core = self.threads[thread as usize].core;
        self.cores[core as usize].current = None;
        self.make_ready(thread, Waker::Nobody);
        let switch = self.draw(|costs| costs.switch_ns);
        self.pick(core, switch);
    }

    /// A thread that runs, or is ready, has something else to do from now on.
    pub(crate) fn redirect(&mut self, thread: u32, work: u64, todo: Todo) {
        let (state, core) = {
            let it = &self.threads[thread as usize];
            (it.state, it.core)
        };
        let runs = state == State::Running;
        if runs {
            self.account(core);
        }
        self.will(thread, work, todo);
        if runs && self.playing_thread() != Some(thread) {
            self.set_core(core);
        }
    }

    fn playing_thread(&self) -> Option<u32> {
        self.cores[self.playing? as usize].current
    }
}
