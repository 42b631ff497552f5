//! How a thread waits at a gate.

use deconvoy_policy::driver::{LONGEST_SLEEP, OUT_OF_THE_WAY, SWITCH_LINGER};
use deconvoy_policy::home::{Keep, Next, Place};
use deconvoy_policy::{Nanos, Observer, WaiterId};

use crate::cell::GateCell;
use crate::kept::Kept;
use crate::parker::Parker;
use crate::primitive::{Ordering, spin_loop};
use crate::seat::{Outcome, Seat};
use crate::{Guard, Latch, System};

/// After a wake-up the guard is about to be free: its holder is on its way out of the call that
/// woke us. So many tries before sleeping on it.
const GUARD_TRIES: u32 = if cfg!(loom) { 1 } else { 200 };

/// Waits for the lock. `interval` and `switches` read the lock's own switch interval and its
/// count of switches: a request counts only if there was no switch since the wait began.
///
/// # Safety
/// The calling thread is `seat`, holds `guard`, and has no reference into the gate. `guard` is
/// held again on return. `switches` may be called while the guard is held.
pub unsafe fn wait<O: Observer, L: Latch>(
    cell: &GateCell<'_, O, L>,
    guard: &impl Guard,
    system: &impl System,
    seat: Seat,
    interval: Nanos,
    switches: impl Fn() -> u64,
) -> Outcome {
    let me = seat.who;
    let Some(parker) = cell.parkers.get(me.0 as usize) else { return Outcome::Retry };
    let begun = system.now();
    let switches_before = switches();
    // SAFETY: the guard is held, and the reference ends with the call.
    let first = unsafe { cell.gate() }.enter(system, begun, seat, interval);
    if let Some(outcome) = first {
        parker.exit();
        return outcome;
    }
    loop {
        // SAFETY: the guard is held, and the reference ends with the call.
        let (mut place, moves) = unsafe { cell.gate() }.place_to_wait(system, me);
        if moves {
            // SAFETY: the guard is held, and no reference into the gate is left.
            unsafe { go_away(cell, guard, system, parker, &mut place) };
        }
        // SAFETY: the guard is held; it is taken again below.
        unsafe { guard.unlock() };
        parker.park(system, place);
        // SAFETY: the guard was let go of just above.
        unsafe { lock_after_waking(guard, system, parker, place.keep) };
        let switched = switches() != switches_before;
        // SAFETY: the guard is held, and the reference ends with the call.
        let outcome = unsafe { cell.gate() }.look(system, me, parker, switched);
        if let Some(outcome) = outcome {
            parker.exit();
            return outcome;
        }
    }
}

/// Moves the calling thread to where it waits. One that cannot go must not stay awake where it is.
///
/// # Safety
/// The calling thread holds `guard`, and has no reference into the gate.
unsafe fn go_away<O: Observer, L: Latch>(
    cell: &GateCell<'_, O, L>,
    guard: &impl Guard,
    system: &impl System,
    parker: &Parker,
    place: &mut Place,
) {
    // SAFETY: the guard is held; it is taken again below.
    unsafe { guard.unlock() };
    let begun = system.now();
    let gone = parker.kept.settle(system, place.keep);
    let ended = system.now();
    // SAFETY: the guard was let go of above.
    unsafe { lock_soon(guard, system, None) };
    if gone {
        // SAFETY: the guard is held, and the reference ends with the call.
        unsafe { cell.gate() }.moved(begun, ended);
    } else {
        *place = Place::default();
    }
}

/// Locks the guard, which whoever woke the calling thread may hold for a moment yet: not one that
/// this thread keeps off its core by being here.
///
/// # Safety
/// As for [`lock_soon`].
unsafe fn lock_after_waking(guard: &impl Guard, system: &impl System, parker: &Parker, keep: Keep) {
    let tries = if parker.is_on_the_core_of_its_waker(system) { 1 } else { GUARD_TRIES };
    // SAFETY: as the caller says.
    unsafe { lock_within(tries, guard, system, Some((&parker.kept, keep))) };
}

/// Locks the guard, which is about to be free.
///
/// # Safety
/// The calling thread does not hold `guard`.
unsafe fn lock_soon(guard: &impl Guard, system: &impl System, place: Option<(&Kept, Keep)>) {
    // SAFETY: as the caller says.
    unsafe { lock_within(GUARD_TRIES, guard, system, place) };
}

/// One that has to sleep for it does so in its `place`: whoever lets go of the guard would wake
/// it on its own core.
///
/// # Safety
/// The calling thread does not hold `guard`.
unsafe fn lock_within(
    tries: u32,
    guard: &impl Guard,
    system: &impl System,
    place: Option<(&Kept, Keep)>,
) {
    for _ in 0..tries {
        // SAFETY: as the caller says.
        if unsafe { guard.try_lock() } {
            return;
        }
        spin_loop();
    }
    if let Some((kept, keep)) = place {
        kept.settle(system, keep);
    }
    // SAFETY: as the caller says, and every try above failed.
    unsafe { guard.lock() };
}

/// The calling thread gave the lock up because it was asked to, and waits until another thread
/// has taken it, if the policy wants that. It may or may not want the lock back: CPython makes a thread
/// wait here before a blocking call too.
///
/// # Safety
/// The calling thread is `me`, if that is `Some`, and holds `guard`, the mutex of the forced switch,
/// under which [`GateCell::announce_taken`] is called; it is held again on return.
pub unsafe fn wait_for_switch<O: Observer, L: Latch>(
    cell: &GateCell<'_, O, L>,
    guard: &impl Guard,
    system: &impl System,
    me: Option<WaiterId>,
) {
    if !cell.forces_switch {
        return;
    }
    let before = cell.taken.load(Ordering::Relaxed);
    // While the guard is held, nobody can say that the lock was taken, let alone give it up again.
    let (keep, next) = cell.after_release();
    // SAFETY: as the caller says; it is taken again below.
    unsafe { guard.unlock() };
    let is_taken = || cell.taken.load(Ordering::Acquire) != before;
    let until = system.now().after(SWITCH_LINGER);
    while next == Next::IsAwake && !is_taken() && system.now() < until {
        spin_loop();
    }
    let kept = me.and_then(|me| cell.parkers.get(me.0 as usize)).map(|parker| &parker.kept);
    if !is_taken() {
        if let Some(kept) = kept {
            kept.settle(system, keep);
        }
        if next == Next::SharesTheCore {
            // Woken by the next holder, this thread would drive it off the core before it has let
            // go of the mutexes.
            let mut sleep = OUT_OF_THE_WAY;
            while !is_taken() {
                system.futex_wait(&cell.taken, before, Some(system.now().after(sleep)));
                sleep = Nanos(sleep.0 * 2).min(LONGEST_SLEEP);
            }
        } else {
            // AcqRel: see `announce_taken`.
            cell.forced.fetch_add(1, Ordering::AcqRel);
            while !is_taken() {
                system.futex_wait(&cell.taken, before, None);
            }
            cell.forced.fetch_sub(1, Ordering::Relaxed);
        }
    }
    // SAFETY: it was let go of above.
    unsafe { lock_soon(guard, system, kept.map(|kept| (kept, keep))) };
    if let Some(kept) = kept {
        // What follows may be a blocking call of the program's.
        kept.settle(system, Keep::Anywhere);
    }
}
