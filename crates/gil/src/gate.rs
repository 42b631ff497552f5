//! The gate in front of one lock: events in, actions done, waiters kept. How a thread waits at it
//! is in `wait.rs`.

use core::cell::UnsafeCell;

use deconvoy_policy::{Action, Actions, AnyPolicy, Event, Nanos, Policy, WaiterId};

use crate::cores::{HomeCore, Keep, Linger, Place};
use crate::parker::Parker;
use crate::primitive::{AtomicU32, Ordering};
use crate::{Latch, System};

/// Sees every event and action, in order, with the guard held: a recorder.
pub trait Observer {
    fn event(&mut self, now: Nanos, event: Event);
    fn action(&mut self, now: Nanos, action: Action);
}

impl Observer for () {
    fn event(&mut self, _: Nanos, _: Event) {}
    fn action(&mut self, _: Nanos, _: Action) {}
}

/// A thread at a gate: its number and which of the threads under that number it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    pub who: WaiterId,
    /// Never 0; another value when a new thread goes by the same number.
    pub generation: u32,
    pub priority: i8,
}

/// How a wait ended: the caller looks at the lock again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Try to take the lock; if it is held, wait again.
    Retry,
    /// The waiter is to ask the holder to drop the lock (CPython does so on a time-out), then as
    /// for `Retry`. There is a holder.
    Ask,
}

/// Whose the lock is.
///
/// | from | to | on |
/// |---|---|---|
/// | `Free` | `Held` | a thread takes it |
/// | `Held` | `Free` or `Kept` | the holder gives it up, and the policy grants it |
/// | `Free` | `Kept` | the policy grants it later |
/// | `Kept` | `Kept` for another | the policy prefers one who came meanwhile |
/// | `Kept` | `Free` | the one it was kept for is gone |
/// | `Kept` | `Held` | the one it was kept for takes it |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    Free,
    Kept(WaiterId),
    Held,
}

/// A waiter whom nothing has reached for this long asks all the same: it learns of a runtime
/// that is shutting down, and a wake-up that we lost costs a second, not the program.
pub(crate) const FLOOR: Nanos = Nanos::from_millis(1_000);

/// How long a thread that must let another one in stays awake for that.
const SWITCH_LINGER: Nanos = Nanos::from_micros(20);

/// A timer may be late by this part of the switch interval, and no more than the longest.
const SLACKS: u64 = 16;
const LONGEST_SLACK: Nanos = Nanos::from_micros(320);

/// A gate, shared between threads; what is inside is guarded by the lock owner's mutex.
pub struct GateCell<'a, O, L> {
    gate: UnsafeCell<Gate<'a, O, L>>,
    pub(crate) parkers: &'a [Parker],
    /// Counts acquisitions. Those who were forced to let another in, and have no number, sleep on it.
    pub(crate) taken: AtomicU32,
    /// How many sleep on `taken`.
    pub(crate) forced: AtomicU32,
    /// Where the last holder is kept if it waits: a packed [`Keep`]. Written with the guard held;
    /// the last holder reads its own.
    last: AtomicU32,
}

// SAFETY:
// - `gate` is reached only through `GateCell::gate`, whose contract is that the guard is held,
//   so one thread at a time has it;
// - everything else is atomic or read-only.
unsafe impl<O: Send, L: Send> Sync for GateCell<'_, O, L> {}

impl<'a, O: Observer, L: Latch> GateCell<'a, O, L> {
    /// `parkers` and `generations`: one for each thread number. `cores`: how many can run at once.
    pub fn new(
        policy: AnyPolicy<'a>,
        parkers: &'a [Parker],
        generations: &'a mut [u32],
        cores: u32,
        observer: O,
        latch: L,
    ) -> GateCell<'a, O, L> {
        GateCell {
            gate: UnsafeCell::new(Gate {
                policy,
                generations,
                parkers,
                actions: Actions::new(),
                observer,
                latch,
                hold: Hold::Free,
                asked: false,
                soon: false,
                inside: 0,
                forced: None,
                holds: 0,
                cores: HomeCore::new(cores > 1),
                interval: Nanos::ZERO,
            }),
            parkers,
            taken: AtomicU32::new(0),
            forced: AtomicU32::new(0),
            last: AtomicU32::new(0),
        }
    }

    /// The calling thread has given the lock up.
    ///
    /// # Safety
    /// As for [`GateCell::gate`].
    pub unsafe fn released(&self, system: &impl System, now: Nanos, seat: Seat) {
        // SAFETY: as the caller says; the reference ends with the block.
        let keep = unsafe {
            let gate = self.gate();
            gate.released(system, now, seat);
            gate.cores.place_of_last().keep
        };
        self.last.store(keep.pack(), Ordering::Relaxed);
    }

    /// Where the calling thread, which has just given the lock up, is kept if it waits.
    pub(crate) fn keep_of_last(&self) -> Keep {
        Keep::unpack(self.last.load(Ordering::Relaxed))
    }

    /// # Safety
    /// The guard is held, and stays so while the result is used; no other result of this is.
    #[allow(clippy::mut_from_ref, reason = "the guard makes it exclusive")]
    pub unsafe fn gate(&self) -> &mut Gate<'a, O, L> {
        // SAFETY: the caller holds the guard and no other reference, see above.
        unsafe { &mut *self.gate.get() }
    }

    /// A thread has taken the lock, whether the gate was told so or not. Lets those go on who were
    /// forced to give it up.
    ///
    /// # Safety
    /// As for [`GateCell::gate`]; and the mutex of the forced switch is held beside the guard.
    pub unsafe fn announce_taken(&self, system: &impl System) {
        // Sequentially consistent with the pair in `wait_for_any`: either this sees the sleeper
        // counted, or the sleeper sees the count go up before it sleeps.
        self.taken.fetch_add(1, Ordering::SeqCst);
        if self.forced.load(Ordering::SeqCst) > 0 {
            system.futex_wake(&self.taken, u32::MAX >> 1);
        }
        // SAFETY: as the caller says; the reference ends with the call.
        unsafe { self.gate() }.let_forced_go(system);
    }
}

/// What the guard guards.
pub struct Gate<'a, O, L> {
    policy: AnyPolicy<'a>,
    generations: &'a mut [u32],
    parkers: &'a [Parker],
    actions: Actions,
    observer: O,
    latch: L,
    hold: Hold,
    /// A drop request is out for the present hold.
    asked: bool,
    /// Whoever was granted the lock last was awake, on another core than the one who gave it up.
    soon: bool,
    /// How many are inside a wait.
    inside: u32,
    /// Who was forced to give the lock up, and waits for another to take it. That one reports its
    /// arrival: it need not wake up for that.
    forced: Option<WaiterId>,
    /// Counts acquisitions.
    holds: u32,
    cores: HomeCore,
    interval: Nanos,
}

impl<O: Observer, L: Latch> Gate<'_, O, L> {
    fn parker(&self, who: WaiterId) -> Option<&Parker> {
        self.parkers.get(who.0 as usize)
    }

    fn go_in(&mut self, parker: &Parker) {
        self.inside += u32::from(!parker.is_inside());
        parker.enter();
    }

    fn go_out(&mut self, parker: &Parker) {
        self.inside = self.inside.saturating_sub(u32::from(parker.is_inside()));
        parker.exit();
    }

    /// The place where `who` waits, if it does.
    fn inside(&self, who: WaiterId) -> Option<&Parker> {
        self.parker(who).filter(|parker| parker.is_inside())
    }

    /// Steps the policy and does what it says, but for requests, which the waiter itself must
    /// make: whether `me` is to ask is the result.
    fn step(&mut self, system: &impl System, now: Nanos, event: Event, me: WaiterId) -> bool {
        self.observer.event(now, event);
        self.actions.clear();
        self.policy.step(now, event, &mut self.actions);
        let actions = self.actions;
        let mut ask = false;
        for &action in actions.as_slice() {
            self.observer.action(now, action);
            match action {
                Action::Ask { who } => ask |= who == me,
                Action::Wake { who } => {
                    if let Some(parker) = self.inside(who) {
                        parker.wake(system);
                    }
                }
                Action::Grant { who } => self.grant(system, who),
                Action::Timer { who, at } => {
                    if let Some(parker) = self.inside(who) {
                        parker.set_timer(system, at, self.slack());
                    }
                }
                Action::Linger { who, until } => {
                    // One that would have to be woken for it is not, where the holder runs.
                    let may = who == me || self.place_of(who).linger == Linger::Spin;
                    if let Some(parker) = self.inside(who).filter(|_| may) {
                        parker.set_linger(system, until);
                    }
                }
            }
        }
        // Somebody else may have the lock by now, or it may be on its way to somebody.
        ask && self.hold == Hold::Held
    }

    /// So much later than it was set for a timer may run out, when a sleeper would have to be woken
    /// to be told.
    fn slack(&self) -> Nanos {
        Nanos(self.interval.0.min(LONGEST_SLACK.0 * SLACKS) / SLACKS)
    }

    /// Keeps the free lock for `who`. One that is not inside a wait will look at the lock by
    /// itself, and may be gone for good: nothing is kept for it.
    fn grant(&mut self, system: &impl System, who: WaiterId) {
        if self.hold == Hold::Held {
            return;
        }
        let awake = self.inside(who).map(|parker| parker.wake(system));
        self.soon = awake == Some(true) && self.place_of(who).linger == Linger::Spin;
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

    /// Begins the record of a thread that this gate has not seen.
    fn greet(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        let Some(known) = self.generations.get_mut(seat.who.0 as usize) else { return };
        if *known != seat.generation {
            *known = seat.generation;
            let event = Event::Start { who: seat.who, priority: seat.priority };
            self.step(system, now, event, seat.who);
        }
    }

    /// The program's own switch interval, as last read.
    pub fn set_interval(&mut self, system: &impl System, now: Nanos, length: Nanos, me: WaiterId) {
        if self.interval != length {
            self.interval = length;
            self.step(system, now, Event::Interval { length }, me);
        }
    }

    /// `seat` has taken the lock. `switches`: the lock's own count of switches.
    pub fn acquired(&mut self, system: &impl System, now: Nanos, seat: Seat, switches: u64) {
        self.greet(system, now, seat);
        self.asked = false;
        self.hold = Hold::Held;
        self.holds = self.holds.wrapping_add(1).max(1);
        self.step(system, now, Event::Acquire { who: seat.who }, seat.who);
        if let Some(parker) = self.parker(seat.who) {
            // Whatever the program does with the lock, it does where it is allowed to. (Another
            // thread than the holder calls this only for one that never waited.)
            parker.kept.settle(system, Keep::Anywhere);
        }
        self.cores.acquired(system, self.policy.computes(seat.who));
        if let Some(forced) = self.forced.take() {
            self.arrives(system, now, forced, switches);
        }
    }

    fn released(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        self.greet(system, now, seat);
        self.hold = Hold::Free;
        self.soon = false;
        self.cores.released(system);
        let event = Event::Release { who: seat.who, asked: self.asked };
        self.step(system, now, event, seat.who);
    }

    fn place_of(&self, who: WaiterId) -> Place {
        self.cores.place(self.policy.computes(who), self.hold == Hold::Held)
    }

    /// Where `me`, the calling thread, waits, and whether it is to go there first.
    pub(crate) fn place_to_wait(&self, system: &impl System, me: WaiterId) -> (Place, bool) {
        self.cores.place_here(system, self.place_of(me))
    }

    pub(crate) fn moved(&mut self, begun: Nanos, ended: Nanos) {
        self.cores.moved(begun, ended);
    }

    /// `me` begins to wait until another has taken the lock, and then on for the lock. `taken`: it
    /// has been taken already.
    pub(crate) fn gives_way(
        &mut self,
        system: &impl System,
        me: WaiterId,
        taken: bool,
        switches: u64,
    ) -> Place {
        let Some(parker) = self.parkers.get(me.0 as usize) else { return Place::default() };
        let alone = self.inside == 1;
        self.go_in(parker);
        let now = system.now();
        if taken {
            self.arrives(system, now, me, switches);
            return self.place_of(me);
        }
        // One that has to be woken first may need the very core that `me` would stay awake on.
        parker.set_linger(system, if self.soon { now.after(SWITCH_LINGER) } else { Nanos::ZERO });
        if alone {
            // With nobody else there, it will be `me` who asks, most likely when an interval is over:
            // it need not be woken to be told so.
            parker.set_timer(system, now.after(self.interval).after(self.slack()), Nanos::ZERO);
        }
        self.forced = Some(me);
        self.cores.place_of_last()
    }

    /// Reports the arrival of `who`, which waits inside.
    fn arrives(&mut self, system: &impl System, now: Nanos, who: WaiterId, switches: u64) {
        if let Some(parker) = self.inside(who) {
            parker.unset_timer();
            parker.note_switches(switches);
        }
        let asks = self.step(system, now, Event::Arrive { who }, who);
        if let Some(parker) = self.inside(who).filter(|_| asks) {
            parker.owe(self.holds);
            parker.wake(system);
        }
    }

    /// `me` stops waiting as one that gave way, and comes back in [`wait`](crate::wait) if it still
    /// wants the lock.
    pub(crate) fn comes_back(
        &mut self,
        system: &impl System,
        me: WaiterId,
        switches: u64,
        floor: Nanos,
    ) {
        let Some(parker) = self.parkers.get(me.0 as usize) else { return };
        let now = system.now();
        let arrived = self.forced != Some(me);
        self.forced = self.forced.filter(|&forced| forced != me);
        let unswitched = arrived && parker.switches() == switches;
        if !self.opens_for(me) && arrived {
            let due = parker.take_timer(now) && unswitched;
            let asks = due && self.step(system, now, Event::Expire { who: me }, me);
            if asks || (now >= floor && self.asks_at_floor()) {
                parker.owe(self.holds);
            }
        }
        self.opens_for(me);
        self.go_out(parker);
    }

    /// Whoever still waits for another to take the lock waits no longer.
    fn let_forced_go(&mut self, system: &impl System) {
        if let Some(parker) = self.forced.take().and_then(|forced| self.inside(forced)) {
            parker.wake(system);
        }
    }

    /// A wait begins. `Some`: it ends at once.
    pub(crate) fn enter(
        &mut self,
        system: &impl System,
        now: Nanos,
        seat: Seat,
        parker: &Parker,
        interval: Nanos,
    ) -> Option<Outcome> {
        let me = seat.who;
        self.go_in(parker);
        self.greet(system, now, seat);
        self.set_interval(system, now, interval, me);
        let owed = parker.take_owed();
        let asks = self.step(system, now, Event::Arrive { who: me }, me);
        let outcome = if asks || (owed == Some(self.holds) && self.hold == Hold::Held) {
            self.asked = true;
            Some(Outcome::Ask)
        } else {
            self.opens_for(me).then_some(Outcome::Retry)
        };
        self.leaves_with(parker, outcome)
    }

    fn leaves_with(&mut self, parker: &Parker, outcome: Option<Outcome>) -> Option<Outcome> {
        if outcome.is_some() {
            self.go_out(parker);
        }
        outcome
    }

    /// A waiter has stopped parking, for whatever reason. `Some`: its wait ends. `switched`: there
    /// was a switch since it began, so that a request would not count before it begins anew.
    pub(crate) fn look(
        &mut self,
        system: &impl System,
        me: WaiterId,
        parker: &Parker,
        switched: bool,
        floor: Nanos,
    ) -> Option<Outcome> {
        let outcome = self.outcome(system, me, parker, switched, floor);
        self.leaves_with(parker, outcome)
    }

    fn outcome(
        &mut self,
        system: &impl System,
        me: WaiterId,
        parker: &Parker,
        switched: bool,
        floor: Nanos,
    ) -> Option<Outcome> {
        let woken = parker.take_woken();
        if self.opens_for(me) || (woken && self.hold == Hold::Free) {
            return Some(Outcome::Retry);
        }
        let now = system.now();
        if parker.take_timer(now) {
            if switched {
                return Some(Outcome::Retry);
            }
            if self.step(system, now, Event::Expire { who: me }, me) {
                self.asked = true;
                return Some(Outcome::Ask);
            }
            if self.opens_for(me) || (parker.take_woken() && self.hold == Hold::Free) {
                return Some(Outcome::Retry);
            }
        }
        if now >= floor {
            let asks = self.asks_at_floor() && self.may_ask();
            return Some(if asks { Outcome::Ask } else { Outcome::Retry });
        }
        None
    }

    /// A program that wants its switches rarer than the floor is not asked more often.
    fn asks_at_floor(&self) -> bool {
        self.interval <= FLOOR
    }

    /// Whether there is a holder to ask; if so, a drop request is noted for its hold.
    pub fn may_ask(&mut self) -> bool {
        self.asked |= self.hold == Hold::Held;
        self.hold == Hold::Held
    }

    /// A thread that may have been waiting has ended.
    pub fn left(&mut self, system: &impl System, now: Nanos, who: WaiterId) {
        if let Some(parker) = self.parkers.get(who.0 as usize) {
            self.go_out(parker);
            parker.forget();
        }
        if self.hold == Hold::Kept(who) {
            self.unkeep();
        }
        self.step(system, now, Event::Leave { who }, who);
        // It may be the one that the others were to let in.
        self.let_forced_go(system);
    }

    /// Lets every waiter out, to look at the lock for itself: the lock goes away.
    pub fn release_all(&mut self, system: &impl System) {
        self.unkeep();
        for parker in self.parkers.iter().filter(|parker| parker.is_inside()) {
            parker.wake(system);
        }
    }
}
