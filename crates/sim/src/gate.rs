//! What happens at the lock: the gate of `deconvoy-gil` and CPython's protocol, in virtual time.

use deconvoy_policy::driver::{FLOOR, ROW};
use deconvoy_policy::home::{Keep, Linger, Next, Place};
use deconvoy_policy::{Action, Event, Nanos, Observer, Policy, WaiterId};
use rand::Rng;

use crate::agenda::NEVER;
use crate::engine::{Hold, Placed, Sim};
use crate::schedule::Waker;
use crate::thread::{On, State, Todo};

impl<O: Observer + Placed> Sim<'_, O> {
    fn is_alone(&self, thread: u32) -> bool {
        self.lock.last == thread && self.lock.row >= ROW && self.lock.waiting == 0
    }

    pub(crate) fn acquire_ns(&self, thread: u32) -> u64 {
        if self.is_alone(thread) { self.costs.own_ns } else { self.costs.acquire_ns }
    }

    pub(crate) fn release_ns(&self, thread: u32) -> u64 {
        if self.is_alone(thread) { self.costs.own_ns } else { self.costs.release_ns }
    }

    /// Steps the policy for `me` and does what it says, but for requests, which the waiter itself
    /// makes: whether `me` is to ask is the result.
    pub(crate) fn step(&mut self, event: Event, me: u32) -> bool {
        let now = Nanos(self.now);
        self.totals.steps += 1;
        let core = self.threads[me as usize].core;
        self.observer.on_core(core);
        self.observer.event(now, event);
        self.actions.clear();
        self.policy.step(now, event, &mut self.actions);
        let actions = self.actions;
        let mut ask = false;
        for &action in actions.as_slice() {
            self.observer.action(now, action);
            match action {
                Action::Ask { who } => ask |= who.0 == me,
                Action::Wake { who } => {
                    self.wake(who.0);
                }
                Action::Recall { who } => self.thread(who.0).woken = false,
                Action::Grant { who } => self.grant(who.0),
                Action::Timer { who, at } => self.set_timer(who.0, at.0),
                Action::Linger { who, until } => self.set_linger(who.0, until.0),
            }
        }
        ask && matches!(self.lock.hold, Hold::Held(_))
    }

    /// Tells one that waits to look at the lock; whether it was awake. `None`: it does not wait.
    fn wake(&mut self, who: u32) -> Option<bool> {
        let hand_off = self.draw(|costs| costs.hand_off_ns);
        let hand_off = hand_off.saturating_sub(self.costs.acquire_ns);
        let thread = self.thread(who);
        if !thread.inside {
            return None;
        }
        let (state, todo, falls_asleep) = (thread.state, thread.todo, thread.falls_asleep);
        if std::mem::replace(&mut thread.woken, true) {
            return Some(!matches!(state, State::Blocked(_)));
        }
        match state {
            State::Blocked(_) => {
                self.wake_up(who, Todo::Look);
                Some(false)
            }
            _ => {
                if todo == Todo::Spin {
                    self.redirect(who, hand_off, Todo::Look);
                }
                if falls_asleep {
                    // Called in vain: it finds that it may not sleep.
                    self.debt += self.draw(|costs| costs.call_ns);
                }
                Some(true)
            }
        }
    }

    /// Has a thread that sleeps at the gate do something, at the cost of the one whose turn it is.
    pub(crate) fn wake_up(&mut self, who: u32, todo: Todo) {
        let work = self.costs.acquire_ns;
        self.will(who, work, todo);
        self.unblock(who, Waker::Thread(self.playing));
    }

    fn set_timer(&mut self, who: u32, at: u64) {
        if self.threads[who as usize].inside {
            self.thread(who).timer = at;
            self.retime(who, at < self.threads[who as usize].sleeps_until);
        }
    }

    fn set_linger(&mut self, who: u32, until: u64) {
        if self.threads[who as usize].inside {
            self.thread(who).linger = until;
            self.retime(who, until > 0);
        }
    }

    /// The times of a waiter are others now; one that sleeps is woken to see them if that `matters`.
    fn retime(&mut self, who: u32, matters: bool) {
        let thread = &self.threads[who as usize];
        match (thread.state, thread.todo) {
            (State::Blocked(_), _) if matters && !thread.woken => self.wake_up(who, Todo::Park),
            (State::Running | State::Ready, Todo::Spin) => self.redirect(who, 0, Todo::Park),
            _ => {}
        }
    }

    fn place_of(&self, who: u32) -> Place {
        let held = matches!(self.lock.hold, Hold::Held(_));
        self.home.place(self.policy.computes(WaiterId(who)), held)
    }

    fn grant(&mut self, who: u32) {
        if let Hold::Held(_) = self.lock.hold {
            return;
        }
        let awake = self.wake(who);
        self.lock.next = self.home.next(self.place_of(who).keep, awake);
        self.lock.hold = if awake.is_some() { Hold::Kept(who) } else { Hold::Free };
    }

    fn is_for(&self, thread: u32) -> bool {
        match self.lock.hold {
            Hold::Free => true,
            Hold::Kept(who) => who == thread,
            Hold::Held(_) => false,
        }
    }

    /// Looks whether the lock is free.
    pub(crate) fn acquire(&mut self, thread: u32) {
        if self.is_for(thread) {
            return self.take(thread);
        }
        let now = self.now;
        let switches = self.lock.switches;
        let mine = self.thread(thread);
        if mine.waits_since == NEVER {
            mine.waits_since = now;
        }
        mine.inside = true;
        mine.woken = false;
        mine.timer = NEVER;
        mine.floor = now + FLOOR.0;
        mine.switches = switches;
        mine.todo = Todo::Park;
        self.debt += self.draw(|costs| costs.hand_off_ns) / 2;
        self.lock.waiting += 1;
        if self.step(Event::Arrive { who: WaiterId(thread) }, thread) {
            self.asks(thread);
        } else if self.lock.hold == Hold::Kept(thread) {
            self.exit(thread);
            self.take(thread);
        } else {
            self.will(thread, 0, Todo::Park);
        }
    }

    fn exit(&mut self, thread: u32) {
        self.thread(thread).inside = false;
        self.lock.waiting -= 1;
    }

    /// The waiter asks the holder to give way, and waits anew; all this with the guard held.
    fn asks(&mut self, thread: u32) {
        self.exit(thread);
        let same = self.lock.switches == self.threads[thread as usize].switches;
        self.will(thread, 0, Todo::Acquire);
        self.has_guard = true;
        let Hold::Held(holder) = self.lock.hold else { return };
        self.debt += self.draw(|costs| costs.hand_off_ns) / 2;
        self.lock.asked = true;
        self.totals.asks += 1;
        if same && !std::mem::replace(&mut self.lock.request, true) {
            let check = self.costs.check_ns;
            let holding = &self.threads[holder as usize];
            if holding.todo == Todo::Compute && holding.work > check {
                self.redirect(holder, check, Todo::Compute);
            }
        }
    }

    /// A waiter has stopped waiting, for whatever reason.
    pub(crate) fn look(&mut self, thread: u32) {
        let now = self.now;
        let mine = self.thread(thread);
        let woken = std::mem::replace(&mut mine.woken, false);
        let switched = mine.switches != self.lock.switches;
        if self.may_take(thread, woken) {
            self.exit(thread);
            return self.take(thread);
        }
        let mine = self.thread(thread);
        if mine.timer <= now {
            mine.timer = NEVER;
            if switched {
                return self.again(thread);
            }
            if self.step(Event::Expire { who: WaiterId(thread) }, thread) {
                return self.asks(thread);
            }
            let woken = std::mem::replace(&mut self.thread(thread).woken, false);
            if self.may_take(thread, woken) {
                self.exit(thread);
                return self.take(thread);
            }
        }
        if self.threads[thread as usize].floor <= now {
            return if switched { self.again(thread) } else { self.asks(thread) };
        }
        self.will(thread, 0, Todo::Park);
    }

    fn may_take(&self, thread: u32, woken: bool) -> bool {
        self.lock.hold == Hold::Kept(thread) || (woken && self.lock.hold == Hold::Free)
    }

    /// Its wait ends, and it finds the lock as it is.
    fn again(&mut self, thread: u32) {
        self.exit(thread);
        self.will(thread, 0, Todo::Acquire);
        self.has_guard = true;
    }

    /// Waits: awake, on its way to another core, or asleep.
    pub(crate) fn park(&mut self, thread: u32) {
        let now = self.now;
        let mine = self.thread(thread);
        let due = mine.timer.min(mine.floor);
        let falls_asleep = std::mem::replace(&mut mine.falls_asleep, false);
        if mine.woken || due <= now {
            return self.will(thread, 0, Todo::Look);
        }
        if falls_asleep {
            return self.sleeps(thread, due);
        }
        let (core, linger) = (mine.core, mine.linger);
        let moved = std::mem::replace(&mut mine.moved_at, NEVER);
        if moved != NEVER {
            self.home.moved(Nanos(moved), Nanos(now));
        }
        let place = self.place_of(thread);
        let (place, moves) = self.home.place_here(Some(core), || Nanos(now), place);
        if moves && moved == NEVER {
            let migrate = self.costs.migrate_ns;
            let mine = self.thread(thread);
            mine.moved_at = now;
            mine.keep = place.keep;
            self.will(thread, migrate, Todo::Park);
            return self.migrate(thread);
        }
        if now < linger {
            match place.linger {
                Linger::Never => {}
                Linger::Spin => return self.will(thread, linger.min(due) - now, Todo::Spin),
                Linger::Yield => {
                    self.settle(thread, place.keep);
                    let work = self.draw(|costs| costs.call_ns) + self.debt;
                    self.debt = 0;
                    self.will(thread, work, Todo::Park);
                    return self.yield_core(thread);
                }
            }
        }
        self.settle(thread, place.keep);
        // What it owes it has done before it sleeps.
        let owes = std::mem::take(&mut self.debt);
        if owes > 0 {
            return self.will(thread, owes, Todo::Park);
        }
        // It has let the guard go. Early in the call the system looks whether it was woken since.
        self.thread(thread).falls_asleep = true;
        let most = self.draw(|costs| costs.call_ns) / 4;
        let looks = self.random.random_range(0..=most);
        self.will(thread, looks, Todo::Park);
    }

    fn sleeps(&mut self, thread: u32, due: u64) {
        self.thread(thread).sleeps_until = due;
        let late = self.draw(|costs| costs.timer_ns);
        self.agenda.set(self.place_of_thread(thread), due.saturating_add(late));
        self.will(thread, self.costs.acquire_ns, Todo::Look);
        self.leave_core(thread, State::Blocked(On::Gate));
    }

    /// It may run where `keep` says from now on.
    pub(crate) fn settle(&mut self, thread: u32, keep: Keep) {
        if self.threads[thread as usize].keep != keep {
            self.thread(thread).keep = keep;
            self.debt += self.costs.affinity_ns;
        }
    }

    pub(crate) fn stops_spinning(&mut self, thread: u32) {
        self.will(thread, 0, Todo::Park);
    }

    fn take(&mut self, thread: u32) {
        assert!(self.is_for(thread), "{thread} takes the lock, which is {:?}", self.lock.hold);
        let now = self.now;
        self.lock.hold = Hold::Held(thread);
        self.lock.since = now;
        self.lock.request = false;
        self.lock.asked = false;
        self.lock.taken += 1;
        if self.lock.last == thread {
            self.lock.row = self.lock.row.saturating_add(1);
        } else {
            self.lock.switches += 1;
            self.lock.row = 1;
            self.lock.last = thread;
        }
        let mine = &mut self.threads[thread as usize];
        mine.acquired += 1;
        mine.woken = false;
        mine.quantum = self.quantum;
        let since = std::mem::replace(&mut mine.waits_since, NEVER);
        if since != NEVER {
            let waited = now - since;
            mine.waited += waited;
            mine.longest_wait = mine.longest_wait.max(waited);
            self.groups[mine.group as usize].waits.note(waited);
        }
        self.step(Event::Acquire { who: WaiterId(thread) }, thread);
        self.settle(thread, Keep::Anywhere);
        let core = self.threads[thread as usize].core;
        self.home.acquired(Some(core), self.policy.computes(WaiterId(thread)));
        self.announce_taken();
        self.will(thread, 0, Todo::Begin);
    }

    /// Gives the lock up; whether it has to let another one have it first.
    pub(crate) fn release(&mut self, thread: u32) -> bool {
        assert!(self.holds(thread), "{thread} gives up what it does not hold");
        let held = self.now - self.lock.since;
        let taken = self.lock.taken;
        self.lock.hold = Hold::Free;
        self.lock.next = Next::Sleeps;
        let mine = self.thread(thread);
        mine.held += held;
        mine.taken = taken;
        mine.nap = 0;
        let core = mine.core;
        self.home.released(Some(core));
        let asked = self.lock.asked;
        self.totals.forced += u64::from(asked);
        self.step(Event::Release { who: WaiterId(thread), asked }, thread);
        std::mem::replace(&mut self.lock.request, false) && self.forces_switch
    }
}
