//! How a thread waits at a gate.

use deconvoy_policy::{Nanos, WaiterId};

use crate::cores::{Keep, Kept};
use crate::gate::{FLOOR, GateCell, Observer, Outcome, Seat};
use crate::primitive::{Ordering, spin_loop};
use crate::{Guard, Latch, System};

/// After a wake-up the guard is about to be free: its holder is on its way out of the call that
/// woke us. So many tries before sleeping on it.
const GUARD_TRIES: u32 = 200;

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
    let first = unsafe { cell.gate() }.enter(system, begun, seat, parker, interval);
    if let Some(outcome) = first {
        return outcome;
    }
    let floor = begun.after(FLOOR);
    loop {
        // SAFETY: the guard is held, and the reference ends with the call.
        let (place, moves) = unsafe { cell.gate() }.place_to_wait(system, me);
        // SAFETY: the guard is held; it is taken again below.
        unsafe { guard.unlock() };
        let moved = moves.then(|| {
            let begun = system.now();
            parker.kept.settle(system, place.keep);
            (begun, system.now())
        });
        parker.park(system, floor, place);
        // SAFETY: the guard was let go of above.
        unsafe { lock_soon(guard, system, &parker.kept, place.keep) };
        let switched = switches() != switches_before;
        // SAFETY: the guard is held, and the reference ends with the block.
        let outcome = unsafe {
            let gate = cell.gate();
            if let Some((begun, ended)) = moved {
                gate.moved(begun, ended);
            }
            gate.look(system, me, parker, switched, floor)
        };
        if let Some(outcome) = outcome {
            return outcome;
        }
    }
}

/// One that has to sleep for it does so where `keep` says: whoever lets go of the guard would wake
/// it on its own core.
///
/// # Safety
/// The calling thread does not hold `guard`.
unsafe fn lock_soon(guard: &impl Guard, system: &impl System, kept: &Kept, keep: Keep) {
    for _ in 0..GUARD_TRIES {
        // SAFETY: as the caller says.
        if unsafe { guard.try_lock() } {
            return;
        }
        spin_loop();
    }
    kept.settle(system, keep);
    // SAFETY: as the caller says, and every try above failed.
    unsafe { guard.lock() };
}

/// The calling thread gave the lock up because it was asked to, and waits until another thread
/// has taken it; and on for the lock itself, which it wants back: it returns when it is to look at
/// the lock, and goes on with [`wait`]. Two sleeps in one, so that it does not wake up in between
/// only to say that it waits.
///
/// # Safety
/// The calling thread is `seat`, has no reference into the gate, and holds `switch_guard`, the
/// mutex of the forced switch, under which (and `guard`) [`GateCell::announce_taken`] is called; it
/// is held again on return. The thread does not hold `guard`. Who holds both took `guard` first.
/// `switches` may be called while `guard` is held.
pub unsafe fn wait_for_switch<O: Observer, L: Latch>(
    cell: &GateCell<'_, O, L>,
    guard: &impl Guard,
    switch_guard: &impl Guard,
    system: &impl System,
    me: WaiterId,
    switches: impl Fn() -> u64,
) {
    let Some(parker) = cell.parkers.get(me.0 as usize) else { return };
    // Before `switch_guard` is let go of, nobody can have taken the lock.
    let before = cell.taken.load(Ordering::Relaxed);
    // SAFETY: it is held; it is taken again below. `guard` comes first in their order.
    unsafe { switch_guard.unlock() };
    // SAFETY: the caller does not hold it.
    unsafe { lock_soon(guard, system, &parker.kept, cell.keep_of_last()) };
    let taken = cell.taken.load(Ordering::Relaxed) != before;
    // SAFETY: the guard is held, and the reference ends with the call.
    let place = unsafe { cell.gate() }.gives_way(system, me, taken, switches());
    // SAFETY: the guard is held; it is taken again below.
    unsafe { guard.unlock() };
    let floor = system.now().after(FLOOR);
    parker.park(system, floor, place);
    // SAFETY: the guard was let go of above.
    unsafe { lock_soon(guard, system, &parker.kept, place.keep) };
    // SAFETY: the guard is held, and the reference ends with the call.
    unsafe { cell.gate() }.comes_back(system, me, switches(), floor);
    // SAFETY: the guard is held.
    unsafe { guard.unlock() };
    // SAFETY: it was let go of above.
    unsafe { lock_soon(switch_guard, system, &parker.kept, place.keep) };
}

/// As [`wait_for_switch`], for a thread without a number: until another thread has taken the lock.
///
/// # Safety
/// As there, of `switch_guard`.
pub unsafe fn wait_for_any<O: Observer, L: Latch>(
    cell: &GateCell<'_, O, L>,
    switch_guard: &impl Guard,
    system: &impl System,
) {
    let before = cell.taken.load(Ordering::Relaxed);
    // SAFETY: as the caller says; it is taken again below.
    unsafe { switch_guard.unlock() };
    cell.forced.fetch_add(1, Ordering::SeqCst);
    while cell.taken.load(Ordering::SeqCst) == before {
        system.futex_wait(&cell.taken, before, None);
    }
    cell.forced.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: it was let go of above.
    unsafe { switch_guard.lock() };
}
