//! `adaptive`: ours, the default. Credit for time spent elsewhere buys immediate preemption.
//!
//! Sources: Beazley's priorities with immediate preemption (2010; slide 72), with the class of a
//! thread replaced by a lag in virtual time, as in Stoica's earliest eligible virtual deadline
//! first (1995) and Linux's CFS; Yeh and Patt's branch predictor (see `predictor`). Written up in
//! `docs/design/002-adaptive.md`.
//!
//! - state: a virtual clock that runs while a thread without credit holds the lock or nobody
//!   does. A thread's credit is how far its own mark lags behind that clock: earned while it is
//!   elsewhere (and while it waits, unless it was forced out), spent by holding, capped. So a
//!   thread that mostly blocks has full credit and one that computes has none, whatever kind of
//!   calls it makes and whatever it did before.
//! - on arrive: a waiter with `wakeup` more credit than a holder that computes asks at once, and
//!   any other holder after `guard`; one with less asks when it has earned it; one without credit
//!   asks when the slice of the holder is over. A thread that was preempted in its slice goes on
//!   with it before the next one starts. One that the holder itself has woken, and among threads that
//!   wake nobody but each other, waits for the end of a slice, too (`docs/design/010-lock-convoys.md`).
//! - on release: most credit first; without credit, first come first served. A releaser who would
//!   preempt the next one at once, and who is expected back before a hand-over would pay, is left
//!   a grace to return in. While the next one wakes up, the lock goes to a waiter that is awake.
//!
//! Tunables, none of which a user needs to touch:
//!
//! | name | unit, default | how found |
//! |---|---|---|
//! | `slice` | 5 ms | CPython's switch interval: as many switches as stock, no more |
//! | `credit` | 5 ms | a slice: what the longest absence is worth |
//! | `wakeup` | 500 us | a tenth of a slice: a thread that computes this long between calls still preempts and does not count as one that computes, and a pair of threads that hand work to and fro beside a busy one shares at this grain |
//! | `grace` | 30 us | what a hand-over to a sleeper costs: a wake-up on a virtual machine. A shorter absence is not worth one |
//! | `handover` | 5 us | the same for one that is awake (1 us there and 1 us back), and a margin. With 30 us, CPU-bound threads lost 2 % at 1,000 messages a second, and messages won nothing |
//! | `guard` | 100 us | what a thread may finish before it is asked: one without credit to give an interrupted slice back, one that has credit or does not compute after another has arrived |
//! | `linger` | 200 us | by search, in simulation and on real threads: four times what a sleep and a wake-up take on a virtual machine. More is hardly better, and costs others their processor |
//!
//! Pathology: many threads that hand work to each other switch more often than under `timeout` (a
//! queue between 24 threads takes 1.3 times as long). With more I/O-bound threads than the lock
//! can serve, each of them and all CPU-bound ones together get equal shares.

mod hand_off;
mod inherit;
mod linger;
mod rules;
mod timers;

use self::linger::Awake;
use crate::queue::Queue;
use crate::slots::{QueueId, Slots};
use crate::timeout::DEFAULT_INTERVAL;
use crate::{Actions, Event, Nanos, Policy, Slot, WaiterId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    pub slice: Nanos,
    pub credit: Nanos,
    pub wakeup: Nanos,
    pub grace: Nanos,
    pub handover: Nanos,
    pub guard: Nanos,
    pub linger: Nanos,
}

impl Params {
    pub const DEFAULT: Params = Params {
        slice: DEFAULT_INTERVAL,
        credit: Nanos::from_millis(5),
        wakeup: Nanos::from_micros(500),
        grace: Nanos::from_micros(30),
        handover: Nanos::from_micros(5),
        guard: Nanos::from_micros(100),
        linger: Nanos::from_micros(200),
    };
}

impl Default for Params {
    fn default() -> Self {
        Params::DEFAULT
    }
}

/// A switch interval above this says that the program wants no forced switches; we ask no sooner.
const HANDS_OFF: Nanos = Nanos::from_millis(100);

/// One hold of the lock: made on acquire, used up on release.
#[derive(Clone, Copy, Debug)]
struct Hold {
    who: WaiterId,
    since: Nanos,
    /// Its credit at `since`.
    credit: Nanos,
    /// When somebody first asked for the lock.
    asked: Option<Nanos>,
}

#[derive(Debug)]
pub struct Adaptive<'a> {
    params: Params,
    slots: Slots<'a>,
    /// Those who earn credit while they wait, most credit first.
    ready: Queue,
    /// Those who were forced out with credit left, most first. It neither grows nor falls: what
    /// computes must not earn by waiting, or many such threads together are never without credit.
    kept: Queue,
    /// Those who were forced out without credit, first come first served.
    spent: Queue,
    hold: Option<Hold>,
    granted: Option<WaiterId>,
    /// Who was told to wake, and has not taken the lock since.
    woken: Option<WaiterId>,
    /// The virtual clock stood at `clock` at `clock_from`, and runs from there (which may lie
    /// ahead: the holder spends its credit until then).
    clock: u64,
    clock_from: Nanos,
    /// Whose slice it is, and how much of it is used. Outlives interruptions by others.
    turn: Option<WaiterId>,
    turn_used: Nanos,
    awake: Awake,
    hands_off: Option<Nanos>,
}

impl<'a> Adaptive<'a> {
    pub fn new(params: Params, cores: u32, slots: &'a mut [Slot]) -> Adaptive<'a> {
        Adaptive {
            params,
            slots: Slots::new(slots),
            ready: Queue::new(QueueId::READY),
            kept: Queue::new(QueueId::KEPT),
            spent: Queue::new(QueueId::SPENT),
            hold: None,
            granted: None,
            woken: None,
            // So far on that no mark is ever below zero.
            clock: params.credit.0,
            clock_from: Nanos::ZERO,
            turn: None,
            turn_used: Nanos::ZERO,
            awake: Awake::new(cores),
            hands_off: None,
        }
    }

    fn set_credit(&mut self, now: Nanos, who: WaiterId, credit: Nanos) {
        self.slots.at_mut(who).mark = self.clock(now).saturating_sub(credit.0);
    }

    fn dequeue(&mut self, who: WaiterId) {
        self.ready.remove(&mut self.slots, who);
        self.kept.remove(&mut self.slots, who);
        self.spent.remove(&mut self.slots, who);
        self.slots.at_mut(who).timer = Nanos::ZERO;
    }

    fn arrive(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        self.slots.at_mut(who).timer = Nanos::ZERO;
        self.woken = self.woken.filter(|&other| other != who);
        if !self.waits(who) {
            self.returned(now, who);
            self.slots.at_mut(who).arrived_at = now;
            self.enqueue(now, who);
        }
        let Some(hold) = self.hold else {
            // The lock is kept for one who has not taken it yet; this may be a better one.
            self.grant_anew(now, who, actions);
            return self.look_later(now, who, actions);
        };
        if self.keeps_timer(who) || self.goes_first(now, who) {
            self.consider(now, who, actions);
            self.linger_for_a_moment(now, &hold, who, actions);
        } else {
            self.look_later(now, who, actions);
        }
    }

    fn enqueue(&mut self, now: Nanos, who: WaiterId) {
        if !self.slots.at(who).forced {
            let credit = self.credit(now, who);
            // A mark below the cap earns nothing more: threads at the cap are equals.
            self.set_credit(now, who, credit);
            let mark = self.slots.at(who).mark;
            self.ready.insert(&mut self.slots, who, |slots, other| slots.at(other).mark <= mark);
        } else if self.slots.at(who).kept >= self.params.wakeup {
            let credit = self.slots.at(who).kept;
            self.kept.insert(&mut self.slots, who, |slots, other| slots.at(other).kept >= credit);
        } else {
            self.spent.push_back(&mut self.slots, who);
        }
    }

    fn woken(&mut self, who: WaiterId, by: WaiterId) {
        if who != by && !self.waits(who) {
            let inside = self.slots.at(by).woken_by != 0;
            let slot = self.slots.at_mut(who);
            (slot.was_woken, slot.inside, slot.woken_by) = (true, inside, by.0.wrapping_add(1));
        }
    }

    /// Learns from the absence of `who`, which ends now.
    fn returned(&mut self, now: Nanos, who: WaiterId) {
        let slot = self.slots.at_mut(who);
        let was_woken = core::mem::take(&mut slot.was_woken);
        if slot.forced || slot.released_at == Nanos::ZERO {
            return;
        }
        if !was_woken {
            slot.woken_by = 0;
            slot.inside = false;
        }
        let long = now.since(slot.released_at) > slot.grace;
        slot.predictor.learn(long);
        if long {
            slot.burst = Nanos((slot.burst.0.saturating_mul(3) + slot.burst_now.0) / 4);
            slot.burst_now = Nanos::ZERO;
        }
    }

    fn acquire(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        if !self.waits(who) {
            self.returned(now, who);
        }
        let slot = self.slots.at(who);
        let credit = if slot.forced { slot.kept } else { self.credit(now, who) };
        self.dequeue(who);
        self.set_credit(now, who, credit);
        self.granted = None;
        self.woken = self.woken.filter(|&other| other != who);
        self.score_linger(now, who);
        let interrupted = self.turn.is_some_and(|owner| self.waits(owner) || self.returns(now));
        if self.turn != Some(who) && !interrupted {
            // Who lives on its credit needs no slice, and takes none from those who do.
            let computes = credit < self.params.wakeup;
            self.turn = computes.then_some(who);
            self.turn_used = Nanos::ZERO;
        }
        self.clock = self.clock(now);
        self.clock_from = now.after(credit);
        self.hold = Some(Hold { who, since: now, credit, asked: None });
        self.watch(now, actions);
    }

    fn release(&mut self, now: Nanos, who: WaiterId, asked: bool, actions: &mut Actions) {
        let Some(hold) = self.hold.take().filter(|hold| hold.who == who) else { return };
        let held = now.since(hold.since);
        let left = Nanos(hold.credit.0.saturating_sub(held.0));
        self.clock = self.clock(now);
        self.clock_from = now;
        self.set_credit(now, who, left);
        if self.turn == Some(who) {
            self.turn_used = self.turn_used.after(Nanos(held.0.saturating_sub(hold.credit.0)));
            if self.turn_used >= self.params.slice {
                self.turn = None;
            }
        }
        let slot = self.slots.at_mut(who);
        // It wants the lock back at once. If that takes long, it waits for a core, not elsewhere.
        slot.forced = asked;
        slot.kept = left;
        // Beyond a slice one is as long as another.
        slot.burst_now = slot.burst_now.after(held).min(self.params.slice);
        slot.released_at = now;
        slot.grace = self.params.grace;
        let expected_back = !asked && slot.predictor.says_short();

        let Some(next) = self.next(now) else { return };
        // Somebody waits: the time until the lock is taken is the hand-off's, not idle. If it
        // counted, each hand-off would pay every absent thread, and many of them together would
        // earn more than they spend: who has no credit would never run.
        self.clock_from = Nanos::MAX;
        let credit = self.credit(now, next);
        let would_preempt = left.0 >= credit.0.saturating_add(self.params.wakeup.0);
        let awake = self.awake.holds(now, next);
        let grace = if awake { self.params.handover } else { self.params.grace };
        self.slots.at_mut(who).grace = grace;
        // Whoever was forced out of its slice a moment ago goes on with it.
        let slice_returns = credit < self.params.wakeup && self.returns(now);
        if slice_returns || (expected_back && would_preempt) {
            let at = now.after(grace);
            let from = now.after(self.params.grace);
            self.linger(now, next, from, at.after(self.params.linger), actions);
            self.set_timer(next, at, actions);
        } else if let Some(other) = self.instead_of(now, next) {
            // The lock is not kept idle until a sleeper has woken up: it wakes up and asks, unless it
            // is on its way.
            if self.slots.at(next).timer == Nanos::ZERO || self.slots.at(next).timer > now {
                self.set_timer(next, now, actions);
            }
            if asked { self.grant(other, actions) } else { self.wake(other, actions) }
        } else if asked || now.since(self.slots.at(next).arrived_at) >= self.params.wakeup {
            self.grant(next, actions);
        } else {
            // The lock is not kept idle for a waiter that has to wake up: many threads that need
            // it for a moment each would go at the pace of wake-ups.
            self.wake(next, actions);
        }
    }

    fn expire(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        self.slots.at_mut(who).timer = Nanos::ZERO;
        if self.hold.is_some() {
            if self.keeps_timer(who) || self.unheard(now) {
                self.consider(now, who, actions);
                self.stays_awake_if_next(now, who, actions);
            } else {
                self.look_later(now, who, actions);
            }
        } else {
            self.grant_anew(now, who, actions);
            self.look_later(now, who, actions);
        }
    }

    /// The lock is free, and `who` is awake: it gets the lock if it is next, whoever was told to take
    /// it. For a sleeper that is next nobody is told again to wait who is about to take it.
    fn grant_anew(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        let next = self.next(now).filter(|&next| self.granted != Some(next));
        if let Some(next) = next.filter(|&next| next == who || self.granted.is_none()) {
            self.grant(next, actions);
        }
    }

    /// Nothing that is kept is of `who` any more: its number may come again.
    fn forget(&mut self, who: WaiterId) {
        self.dequeue(who);
        self.granted = self.granted.filter(|&other| other != who);
        self.woken = self.woken.filter(|&other| other != who);
        self.turn = self.turn.filter(|&other| other != who);
        self.awake.forget(who);
    }

    fn leave(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        self.forget(who);
        if self.hold.is_some() {
            self.watch(now, actions);
        } else if self.granted.is_none()
            && let Some(next) = self.next(now)
        {
            self.grant(next, actions);
        }
        if self.hold.is_none() && self.next(now).is_none() {
            self.clock = self.clock(now);
            self.clock_from = now;
        }
    }
}

impl Policy for Adaptive<'_> {
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        match event {
            Event::Start { who, priority } => self.start(now, who, priority),
            Event::Made { who, by } if self.slots.has(who) => self.inherit(now, who, by),
            Event::Woken { who, by } if self.slots.has(who) => self.woken(who, by),
            Event::Interval { length } => {
                self.hands_off = (length > HANDS_OFF).then_some(length);
            }
            Event::Arrive { who } if self.slots.has(who) => self.arrive(now, who, actions),
            Event::Acquire { who } => self.acquire(now, who, actions),
            Event::Release { who, asked } => self.release(now, who, asked, actions),
            Event::Expire { who } if self.waits(who) => self.expire(now, who, actions),
            Event::Leave { who } => self.leave(now, who, actions),
            Event::Made { .. }
            | Event::Woken { .. }
            | Event::Arrive { .. }
            | Event::Expire { .. } => {}
        }
    }

    fn punctual(&self) -> Option<[Option<WaiterId>; 3]> {
        Some(self.heads())
    }

    fn computes(&self, who: WaiterId) -> bool {
        self.has_no_credit(who) && self.needs(who) >= self.params.wakeup
    }

    /// A waiter without credit sees every other thread use a slice before it, and each of them
    /// earn at most the credit cap and what those slices are worth. A turn may overrun before it is
    /// asked: by `guard`, by the slack of a timer, which is below `wakeup`, and by a slice if it is of
    /// a thread that never computed so far.
    fn bound(&self, threads: u32, check: Nanos) -> Option<Nanos> {
        let n = u64::from(threads.max(1));
        let p = &self.params;
        let overrun = p.guard.0 + p.wakeup.0.max(p.slice.0);
        let turn = p.slice.0 + overrun + check.0 + p.grace.0;
        let slices = turn.saturating_mul(n);
        Some(Nanos(slices.saturating_add(p.credit.0).saturating_mul(n + 1)))
    }
}
