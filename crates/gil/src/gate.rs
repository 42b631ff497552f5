//! The gate in front of one lock: events in, actions done, waiters kept.

use core::cell::UnsafeCell;

use deconvoy_policy::{Action, Actions, AnyPolicy, Event, Nanos, Policy, WaiterId};

use crate::parker::Parker;
use crate::primitive::{AtomicU32, Ordering, spin_loop};
use crate::{Guard, System};

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
    /// for `Retry`.
    Ask,
}

/// A waiter whom nothing has reached for this long asks all the same: it learns of a runtime
/// that is shutting down, and a wake-up that we lost costs a second, not the program.
const FLOOR: Nanos = Nanos::from_millis(1_000);

/// After a wake-up the guard is about to be free: its holder is on its way out of the call that
/// woke us. So many tries before sleeping on it.
const GUARD_TRIES: u32 = 200;

/// How long a thread that must let another one in stays awake for that.
const SWITCH_LINGER: Nanos = Nanos::from_micros(20);

/// A gate, shared between threads; what is inside is guarded by the lock owner's mutex.
pub struct GateCell<'a, O> {
    gate: UnsafeCell<Gate<'a, O>>,
    parkers: &'a [Parker],
    /// Counts acquisitions; those who were forced to let another in sleep on it.
    taken: AtomicU32,
    /// How many sleep on `taken`.
    forced: AtomicU32,
    parallel: bool,
}

// SAFETY:
// - `gate` is reached only through `GateCell::gate`, whose contract is that the guard is held,
//   so one thread at a time has it;
// - everything else is atomic or read-only.
unsafe impl<O: Send> Sync for GateCell<'_, O> {}

impl<'a, O: Observer> GateCell<'a, O> {
    /// `parkers` and `generations`: one for each thread number. `cores`: how many can run at once.
    pub fn new(
        policy: AnyPolicy<'a>,
        parkers: &'a [Parker],
        generations: &'a mut [u32],
        cores: u32,
        observer: O,
    ) -> GateCell<'a, O> {
        GateCell {
            gate: UnsafeCell::new(Gate {
                policy,
                generations,
                parkers,
                actions: Actions::new(),
                observer,
                asked: false,
                interval: Nanos::ZERO,
            }),
            parkers,
            taken: AtomicU32::new(0),
            forced: AtomicU32::new(0),
            parallel: cores > 1,
        }
    }

    /// # Safety
    /// The guard is held, and stays so while the result is used; no other result of this is.
    #[allow(clippy::mut_from_ref, reason = "the guard makes it exclusive")]
    pub unsafe fn gate(&self) -> &mut Gate<'a, O> {
        // SAFETY: the caller holds the guard and no other reference, see above.
        unsafe { &mut *self.gate.get() }
    }

    /// A thread has taken the lock, and the mutex of the forced switch is held beside the guard.
    /// Lets those go on who were forced to give it up.
    pub fn announce_taken(&self, system: &impl System) {
        // Sequentially consistent with the pair in `wait_for_switch`: either this sees the sleeper
        // counted, or the sleeper sees the count go up before it sleeps.
        self.taken.fetch_add(1, Ordering::SeqCst);
        if self.forced.load(Ordering::SeqCst) > 0 {
            system.futex_wake(&self.taken, u32::MAX >> 1);
        }
    }
}

/// What the guard guards.
pub struct Gate<'a, O> {
    policy: AnyPolicy<'a>,
    generations: &'a mut [u32],
    parkers: &'a [Parker],
    actions: Actions,
    observer: O,
    /// A drop request is out for the present hold.
    asked: bool,
    interval: Nanos,
}

impl<O: Observer> Gate<'_, O> {
    pub fn observer(&mut self) -> &mut O {
        &mut self.observer
    }

    fn parker(&self, who: WaiterId) -> Option<&Parker> {
        self.parkers.get(who.0 as usize)
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
                Action::Wake { who } => self.wake(system, now, who),
                Action::Timer { who, at } => {
                    if let Some(parker) = self.parker(who).filter(|parker| parker.is_inside()) {
                        parker.set_timer(system, at);
                    }
                }
                Action::Linger { who, until } => {
                    if let Some(parker) = self.parker(who).filter(|parker| parker.is_inside()) {
                        parker.set_linger(system, until);
                    }
                }
            }
        }
        ask
    }

    fn wake(&mut self, system: &impl System, _now: Nanos, who: WaiterId) {
        if let Some(parker) = self.parker(who)
            && parker.is_inside()
        {
            parker.wake(system);
        }
        // Else it is on its way: it has returned from a wait and will look at the lock itself.
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

    pub fn acquired(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        self.greet(system, now, seat);
        self.asked = false;
        self.step(system, now, Event::Acquire { who: seat.who }, seat.who);
    }

    pub fn released(&mut self, system: &impl System, now: Nanos, seat: Seat) {
        self.greet(system, now, seat);
        let event = Event::Release { who: seat.who, asked: self.asked };
        self.step(system, now, event, seat.who);
    }

    /// A drop request was made for the present hold.
    pub fn note_asked(&mut self) {
        self.asked = true;
    }

    /// A thread that may have been waiting has ended.
    pub fn left(&mut self, system: &impl System, now: Nanos, who: WaiterId) {
        if let Some(parker) = self.parker(who) {
            parker.exit();
        }
        self.step(system, now, Event::Leave { who }, who);
    }

    /// Lets every waiter out, to look at the lock for itself: the lock goes away.
    pub fn release_all(&mut self, system: &impl System) {
        for parker in self.parkers.iter().filter(|parker| parker.is_inside()) {
            parker.wake(system);
        }
    }
}

/// Waits for the lock. `interval` and `switches` read the lock's own switch interval and its
/// count of switches: a request counts only if there was no switch since the wait began.
///
/// # Safety
/// The calling thread is `seat`, holds `guard`, and has no reference into the gate. `guard` is
/// held again on return. `switches` may be called while the guard is held.
pub unsafe fn wait<O: Observer>(
    cell: &GateCell<'_, O>,
    guard: &impl Guard,
    system: &impl System,
    seat: Seat,
    interval: Nanos,
    switches: impl Fn() -> u64,
) -> Outcome {
    let me = seat.who;
    let Some(parker) = cell.parkers.get(me.0 as usize) else { return Outcome::Ask };
    let begun = system.now();
    let switches_before = switches();
    parker.enter();
    {
        // SAFETY: the guard is held, and the reference ends with this block.
        let gate = unsafe { cell.gate() };
        gate.greet(system, begun, seat);
        gate.set_interval(system, begun, interval, me);
        if gate.step(system, begun, Event::Arrive { who: me }, me) {
            gate.asked = true;
            parker.exit();
            return Outcome::Ask;
        }
    }
    let floor = begun.after(FLOOR);
    loop {
        // SAFETY: the guard is held; it is taken again below.
        unsafe { guard.unlock() };
        parker.park(system, floor);
        // SAFETY: the guard was let go of just above.
        unsafe { lock_soon(guard) };
        let outcome = if parker.is_woken() || switches() != switches_before {
            // After a switch the caller must begin anew for a request to count.
            Some(Outcome::Retry)
        } else {
            // SAFETY: the guard is held, and the reference ends with this block.
            let gate = unsafe { cell.gate() };
            let now = system.now();
            let expired = parker.take_timer(now);
            let ask = expired && gate.step(system, now, Event::Expire { who: me }, me);
            if ask || now >= floor {
                gate.asked = true;
                Some(Outcome::Ask)
            } else {
                parker.is_woken().then_some(Outcome::Retry)
            }
        };
        if let Some(outcome) = outcome {
            parker.exit();
            return outcome;
        }
    }
}

/// # Safety
/// The calling thread does not hold `guard`.
unsafe fn lock_soon(guard: &impl Guard) {
    for _ in 0..GUARD_TRIES {
        // SAFETY: as the caller says.
        if unsafe { guard.try_lock() } {
            return;
        }
        spin_loop();
    }
    // SAFETY: as the caller says, and every try above failed.
    unsafe { guard.lock() };
}

/// The calling thread gave the lock up because it was asked to, and waits until another thread
/// has taken it.
///
/// # Safety
/// The calling thread holds `guard`, the mutex of the forced switch, under which
/// [`GateCell::announce_taken`] is called; it is held again on return.
pub unsafe fn wait_for_switch<O: Observer>(
    cell: &GateCell<'_, O>,
    guard: &impl Guard,
    system: &impl System,
) {
    let before = cell.taken.load(Ordering::Relaxed);
    // SAFETY: as the caller says; it is taken again below.
    unsafe { guard.unlock() };
    let until = system.now().after(SWITCH_LINGER);
    while cell.parallel && cell.taken.load(Ordering::Acquire) == before && system.now() < until {
        spin_loop();
    }
    if cell.taken.load(Ordering::Acquire) == before {
        cell.forced.fetch_add(1, Ordering::SeqCst);
        while cell.taken.load(Ordering::SeqCst) == before {
            system.futex_wait(&cell.taken, before, None);
        }
        cell.forced.fetch_sub(1, Ordering::SeqCst);
    }
    // SAFETY: it was let go of above.
    unsafe { lock_soon(guard) };
}
