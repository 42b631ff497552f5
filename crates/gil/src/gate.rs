//! The gate in front of one lock: events in, actions done, waiters kept. How a thread waits at it
//! is in `wait.rs`.

#[cfg(all(test, not(loom)))]
mod tests;

use deconvoy_policy::driver::FLOOR;
use deconvoy_policy::home::{HomeCore, Keep, Next, Place};
use deconvoy_policy::{Action, Actions, AnyPolicy, Event, Nanos, Observer, Policy, WaiterId};

use crate::parker::Parker;
use crate::seat::{Hold, Outcome, Seat};
use crate::usage::Own;
use crate::{Latch, System};

/// A holder that has been asked for this long is in C code, or it shuts the runtime down. All
/// others ask then as well, as they do every interval without us: after this, after twice this, …
const UNHEARD: Nanos = Nanos::from_millis(20);

/// What the guard guards.
pub struct Gate<'a, O, L> {
    number: u32,
    policy: AnyPolicy<'a>,
    /// The key of each thread's seat, as last told to the policy; 0: none.
    known: &'a mut [u32],
    pub(crate) parkers: &'a [Parker],
    /// All threads that this gate has seen have numbers below this.
    seen: usize,
    /// The time of the last step.
    latest: Nanos,
    actions: Actions,
    observer: O,
    latch: L,
    hold: Hold,
    /// The lock is being destroyed: nobody gets it any more.
    closed: bool,
    /// When a drop request was made for the present hold.
    asked: Option<Nanos>,
    /// How long after that all others ask too.
    unheard: Nanos,
    /// Who was granted the lock last.
    next: Next,
    cores: HomeCore,
    interval: Nanos,
}

impl<'a, O: Observer, L: Latch> Gate<'a, O, L> {
    /// `number`: not 0, and another than that of any gate that shares the parkers. `parkers` and
    /// `known` (zeroes): one for each thread number. `cores`: how many can run at once.
    pub fn new(
        number: u32,
        policy: AnyPolicy<'a>,
        parkers: &'a [Parker],
        known: &'a mut [u32],
        cores: u32,
        observer: O,
        latch: L,
    ) -> Gate<'a, O, L> {
        Gate {
            number,
            policy,
            known,
            parkers,
            seen: 0,
            latest: Nanos::ZERO,
            actions: Actions::new(),
            observer,
            latch,
            hold: Hold::Free,
            closed: false,
            asked: None,
            unheard: UNHEARD,
            next: Next::Sleeps,
            cores: HomeCore::new(cores > 1),
            interval: Nanos::ZERO,
        }
    }

    fn parker(&self, who: WaiterId) -> Option<&Parker> {
        self.parkers.get(who.0 as usize)
    }

    /// The place where `who` waits, if it does.
    fn inside(&self, who: WaiterId) -> Option<&Parker> {
        self.parker(who).filter(|parker| parker.is_inside(self.number))
    }

    /// Tells `who` something if it waits here; one that does not looks at the lock by itself.
    fn tell(&self, who: WaiterId, what: impl FnOnce(&Parker)) {
        if let Some(parker) = self.inside(who) {
            what(parker);
        }
    }

    /// The places of all who wait.
    fn waiters(&self) -> impl Iterator<Item = &'a Parker> {
        let number = self.number;
        self.parkers.iter().take(self.seen).filter(move |parker| parker.is_inside(number))
    }

    /// Steps the policy and does what it says, but for requests, which the waiter itself must
    /// make: whether `me` is to ask is the result.
    fn step(&mut self, system: &impl System, now: Nanos, event: Event, me: WaiterId) -> bool {
        if self.closed {
            return false;
        }
        // Of a thread that had the lock to itself the policy learns later (`returned`).
        let now = now.max(self.latest);
        self.latest = now;
        self.observer.event(now, event);
        self.actions.clear();
        self.policy.step(now, event, &mut self.actions);
        let (mut ask, mut done) = (false, 0);
        while let Some(&action) = self.actions.as_slice().get(done) {
            done += 1;
            self.observer.action(now, action);
            match action {
                Action::Ask { who } => ask |= who == me,
                Action::Wake { who } => self.tell(who, |parker| {
                    parker.wake(system);
                }),
                Action::Recall { who } => self.tell(who, |parker| {
                    parker.take_woken();
                }),
                Action::Grant { who } => self.grant(system, who),
                Action::Timer { who, at } => self.tell(who, |parker| parker.set_timer(system, at)),
                Action::Linger { who, until } => {
                    self.tell(who, |parker| parker.set_linger(system, until));
                }
            }
        }
        // Somebody else may have the lock by now, or it may be on its way to somebody.
        ask && self.hold == Hold::Held
    }

    /// Keeps the free lock for `who`. One that is not inside a wait will look at the lock by
    /// itself, and may be gone for good: nothing is kept for it.
    fn grant(&mut self, system: &impl System, who: WaiterId) {
        if self.hold == Hold::Held {
            return;
        }
        let awake = self.inside(who).map(|parker| parker.wake(system));
        let keep = self.place_of(who).keep;
        self.next = self.cores.next(keep, awake);
        if awake.is_some() {
            self.latch.close();
            self.hold = Hold::Kept(who);
        } else {
            self.unkeep();
        }
    }

    fn unkeep(&mut self) {
        if let Hold::Kept(_) = self.hold {
            self.latch.open();
            self.hold = Hold::Free;
        }
    }

    /// Opens the lock for `me` if it is kept for it: the caller takes it with the guard still held.
    fn opens_for(&mut self, me: WaiterId) -> bool {
        let kept = self.hold == Hold::Kept(me);
        if kept {
            self.unkeep();
        }
        kept
    }

    /// Begins the record of a thread that this gate has not seen, or whose priority is another now:
    /// its name is known only from its first acquisition on, and may change.
    fn greet(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        let Some(known) = self.known.get_mut(seat.who.0 as usize) else { return };
        if *known != seat.key() {
            *known = seat.key();
            self.seen = self.seen.max(seat.who.0 as usize + 1);
            let event = Event::Start { who: seat.who, priority: seat.priority };
            self.step(system, now, event, seat.who);
        }
    }

    /// The calling thread, `seat`, was made by the thread `by` of that generation, and has not held
    /// the lock yet. Of no interest if that one never used the lock, or has ended.
    pub fn made(
        &mut self,
        system: &impl System,
        now: Nanos,
        seat: Seat,
        (by, generation): (WaiterId, u32),
    ) {
        let known = self.known.get(by.0 as usize).copied().unwrap_or(0);
        if generation != 0 && known >> 8 == Seat::stem(generation) {
            self.greet(system, now, seat);
            self.step(system, now, Event::Made { who: seat.who, by }, seat.who);
        }
    }

    /// The calling thread, `seat`, comes from a wait that the thread `by` has ended.
    pub fn woken(&mut self, system: &impl System, now: Nanos, seat: Seat, by: WaiterId) {
        let known = self.known.get(by.0 as usize).copied().unwrap_or(0);
        if known != 0 {
            self.greet(system, now, seat);
            self.step(system, now, Event::Woken { who: seat.who, by }, seat.who);
        }
    }

    pub(crate) fn forces_switch(&self) -> bool {
        self.policy.forces_switch()
    }

    /// The program's own switch interval, as last read.
    pub fn set_interval(&mut self, system: &impl System, now: Nanos, length: Nanos, me: WaiterId) {
        if self.interval != length {
            self.interval = length;
            self.step(system, now, Event::Interval { length }, me);
        }
    }

    /// The calling thread, `seat`, has taken the lock.
    pub fn acquired(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        self.holds(system, now, seat);
        if let Some(parker) = self.parker(seat.who) {
            // Whatever the program does with the lock, it does where it is allowed to.
            parker.kept.settle(system, Keep::Anywhere);
        }
        let here = self.core(system);
        self.cores.acquired(here, self.policy.computes(seat.who));
    }

    /// A thread has had the lock to itself, and came and went unseen. One that `computed` counts as
    /// having held it all that time, any other as having been elsewhere. `holds`: it has it now.
    pub fn returned(
        &mut self,
        system: &impl System,
        now: Nanos,
        own: &Own,
        computed: bool,
        holds: bool,
    ) {
        if computed || holds {
            self.is_held_by(system, if computed { own.since } else { now }, own.seat);
        }
        if computed && !holds {
            self.hold = Hold::Free;
            let event = Event::Release { who: own.seat.who, asked: false };
            self.step(system, now, event, own.seat.who);
        }
    }

    /// Another thread, `seat`, has had the lock since before anybody waited.
    fn is_held_by(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        self.holds(system, now, seat);
        self.cores.acquired_elsewhere();
    }

    fn holds(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        self.greet(system, now, seat);
        self.asked = None;
        self.unheard = UNHEARD;
        self.hold = Hold::Held;
        self.step(system, now, Event::Acquire { who: seat.who }, seat.who);
    }

    /// Where the last holder is kept if it sleeps.
    pub(crate) fn keep_of_last(&self) -> Keep {
        self.cores.keep_of_last()
    }

    pub(crate) fn next(&self) -> Next {
        self.next
    }

    pub(crate) fn released(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        self.greet(system, now, seat);
        self.hold = Hold::Free;
        self.next = Next::Sleeps;
        let here = self.core(system);
        self.cores.released(here);
        let event = Event::Release { who: seat.who, asked: self.asked.is_some() };
        self.step(system, now, event, seat.who);
    }

    /// Where the calling thread runs, if that matters.
    fn core(&self, system: &impl System) -> Option<u32> {
        if self.cores.is_parallel() { system.core() } else { None }
    }

    fn place_of(&self, who: WaiterId) -> Place {
        self.cores.place(self.policy.computes(who), self.hold == Hold::Held)
    }

    /// Where `me`, the calling thread, waits, and whether it is to go there first.
    pub(crate) fn place_to_wait(&self, system: &impl System, me: WaiterId) -> (Place, bool) {
        self.cores.place_here(self.core(system), || system.now(), self.place_of(me))
    }

    pub(crate) fn moved(&mut self, begun: Nanos, ended: Nanos) {
        self.cores.moved(begun, ended);
    }

    /// A wait begins. `Some`: it ends at once.
    pub(crate) fn enter(
        &mut self,
        system: &impl System,
        now: Nanos,
        seat: Seat,
        interval: Nanos,
    ) -> Option<Outcome> {
        let me = seat.who;
        if let Some(parker) = self.parker(me) {
            // One that could not ask when all did does so soon.
            let soon = if parker.take_missed() { interval.min(FLOOR) } else { FLOOR };
            parker.enter(self.number, now.after(soon));
        }
        self.greet(system, now, seat);
        self.set_interval(system, now, interval, me);
        if self.step(system, now, Event::Arrive { who: me }, me) {
            return Some(self.asks(system, now));
        }
        self.opens_for(me).then_some(Outcome::Retry)
    }

    /// A waiter has stopped parking, for whatever reason. `Some`: its wait ends. `switched`: there
    /// was a switch since it began, so that a request would not count before it begins anew.
    pub(crate) fn look(
        &mut self,
        system: &impl System,
        me: WaiterId,
        parker: &Parker,
        switched: bool,
    ) -> Option<Outcome> {
        let woken = parker.take_woken();
        if self.closed {
            return Some(Outcome::Ask);
        }
        if self.opens_for(me) || (woken && self.hold == Hold::Free) {
            return Some(Outcome::Retry);
        }
        let now = system.now();
        if parker.take_timer(now) {
            if switched {
                return Some(Outcome::Retry);
            }
            if self.step(system, now, Event::Expire { who: me }, me) {
                return Some(self.asks(system, now));
            }
            if self.opens_for(me) || (parker.take_woken() && self.hold == Hold::Free) {
                return Some(Outcome::Retry);
            }
        }
        if parker.is_at_floor(now) {
            if switched && self.unheard > UNHEARD {
                parker.set_missed();
            }
            // A program that wants its switches rarer than this is not asked more often.
            let asks = !switched && self.interval <= FLOOR && self.may_ask(now);
            return Some(if asks { Outcome::Ask } else { Outcome::Retry });
        }
        None
    }

    /// Whether there is a holder to ask; if so, a drop request is noted for its hold.
    pub fn may_ask(&mut self, now: Nanos) -> bool {
        let held = self.hold == Hold::Held;
        if held {
            self.asked.get_or_insert(now);
        }
        held
    }

    /// The calling thread asks. If others did long ago, all do.
    fn asks(&mut self, system: &impl System, now: Nanos) -> Outcome {
        let since = *self.asked.get_or_insert(now);
        if now.since(since) >= self.unheard.max(Nanos(self.interval.0.saturating_mul(4))) {
            self.unheard = Nanos(self.unheard.0.saturating_mul(2));
            self.waiters().for_each(|parker| parker.set_floor(system, now));
        }
        Outcome::Ask
    }

    /// A thread that may have been waiting has ended.
    pub fn left(&mut self, system: &impl System, now: Nanos, who: WaiterId) {
        if let Some(parker) = self.parker(who) {
            parker.forget();
        }
        if self.hold == Hold::Kept(who) {
            self.unkeep();
        }
        self.step(system, now, Event::Leave { who }, who);
    }

    /// The lock is about to be destroyed. Lets every waiter out, as from a wait that has run out:
    /// that is when CPython looks whether the thread is to end.
    pub fn close(&mut self, system: &impl System) {
        self.closed = true;
        self.unkeep();
        for parker in self.waiters() {
            parker.wake(system);
        }
    }
}
