//! Waiters of Ruby's lock that stay awake, and who waits on which condition variable.
//!
//! One that stays awake has let go of the lock's mutex, and sleeps on nothing: whoever signals its
//! condition variable would reach nobody. So it is told beside (`Slot::poked`), and looks when it has the
//! mutex back. A signal that comes before that is seen there; one that comes later finds it as it
//! would in any wait.

use core::ffi::c_void;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};

use deconvoy_gil::{Guard, Keep, Linger, System};
use deconvoy_policy::{Nanos, WaiterId};

use super::{see_holder, steered};
use crate::real;
use crate::sys::Linux;
use crate::threads::{Me, PARKERS, other};

/// How many signals were sent to waiters.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

/// Who waits on which condition variable, as number + 1, by the variable's address; of two in one place
/// the one that came last.
static WAITERS: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];

fn place_of(cond: usize) -> Option<&'static AtomicU32> {
    // Fibonacci hashing: they lie at regular distances.
    let hash = (cond as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    WAITERS.get(hash as usize)
}

/// The calling thread is about to wait for the lock on this variable; it holds the lock's mutex.
pub fn enters(me: Me, cond: usize) {
    me.slot.poked.store(0, Ordering::Relaxed);
    me.slot.cond.store(cond, Ordering::Relaxed);
    if let Some(place) = place_of(cond) {
        place.store(me.who.0 + 1, Ordering::Relaxed);
    }
}

/// Who waits for the lock on this variable.
pub fn waiter_on(cond: usize) -> Option<Me> {
    let number = place_of(cond)?.load(Ordering::Relaxed).checked_sub(1)?;
    other(WaiterId(number)).filter(|next| {
        next.slot.cond.load(Ordering::Relaxed) == cond
            && next.slot.wants.load(Ordering::Relaxed) > 0
    })
}

/// Whoever waits on this variable is about to be signalled.
pub fn signals(cond: usize) {
    // Release: who sees it sees what was done before.
    SIGNALS.fetch_add(1, Ordering::Release);
    if let Some(waiter) = waiter_on(cond) {
        waiter.slot.poked.store(1, Ordering::Release);
    }
}

/// Has a waiter look, asleep or awake.
pub fn wake(waiter: Me) {
    waiter.slot.poked.store(1, Ordering::Release);
    real::signal(waiter.slot.cond.load(Ordering::Relaxed));
}

pub fn is_awake(waiter: Me) -> bool {
    waiter.slot.awake.load(Ordering::Relaxed) == 1
}

/// Whether the waiter, the calling thread, was told to look; it is forgotten.
pub fn was_poked(me: Me) -> bool {
    me.slot.poked.swap(0, Ordering::Acquire) == 1
}

/// Looks between two looks at the clock.
const SPINS: u32 = 24;

/// So many tries for a mutex that is about to be let go of.
const TRIES: u32 = 200;

/// Where the calling thread waits: it goes there first if need be. Until when it stays awake, at most
/// `until`; `None`: it is to sleep.
///
/// # Safety
/// The calling thread holds `mutex`, and does again afterwards.
pub unsafe fn settles(me: Me, mutex: *mut c_void, until: Option<Nanos>) -> Option<Nanos> {
    let here = Linux.core();
    let (place, moves, linger, now) = steered(|steer, now| {
        see_holder(steer);
        let (place, moves) = steer.place_to_wait(now, me.who, here);
        (place, moves, steer.stays_awake_until(me.who), now)
    })?;
    if moves {
        // SAFETY: as the caller says.
        unsafe { go_to(me, mutex, place.keep, now) };
        // It has to look again.
        return Some(now);
    }
    let until = until.unwrap_or(Nanos::MAX).min(linger);
    (place.linger == Linger::Spin && until > now).then_some(until)
}

/// The calling thread has just taken the lock. One that computes uses it where the last one that did had it.
pub fn takes_it_home(me: Me) {
    let here = Linux.core();
    let keep = steered(|steer, now| steer.place_to_wait(now, me.who, here).0.keep);
    if let (Some(keep @ Keep::On(home)), Some(parker)) = (keep, PARKERS.get(me.who.0 as usize))
        && here.is_some_and(|here| here != home)
    {
        parker.keep(&Linux, keep);
    }
}

/// # Safety
/// The calling thread holds `mutex`.
unsafe fn go_to(me: Me, mutex: *mut c_void, keep: Keep, begun: Nanos) {
    let mutex = real::Mutex(mutex);
    let Some(parker) = PARKERS.get(me.who.0 as usize) else { return };
    // SAFETY: as the caller says; it is taken again below.
    unsafe { mutex.unlock() };
    parker.keep(&Linux, keep);
    let ended = Linux.now();
    // SAFETY: it was let go of above.
    unsafe { lock_soon(&mutex) };
    // It may have missed a signal.
    me.slot.poked.store(1, Ordering::Relaxed);
    steered(|steer, _| steer.moved(begun, ended));
}

/// Lets go of the mutex and stays awake until something `is_over`, somebody has it look, or the time is.
///
/// # Safety
/// The calling thread holds `mutex`, and does again when this is over.
pub unsafe fn stay(
    me: Me,
    mutex: *mut c_void,
    until: Nanos,
    first: impl FnOnce(),
    is_over: impl Fn() -> bool,
) {
    let mutex = real::Mutex(mutex);
    let before = SIGNALS.load(Ordering::Relaxed);
    me.slot.awake.store(1, Ordering::Relaxed);
    // SAFETY: as the caller says; it is taken again below.
    unsafe { mutex.unlock() };
    first();
    let is_told = || is_over() || me.slot.poked.load(Ordering::Relaxed) == 1;
    while !is_told() && Linux.now() < until {
        for _ in 0..SPINS {
            if is_told() {
                break;
            }
            spin_loop();
        }
    }
    // SAFETY: it was let go of above.
    unsafe { lock_soon(&mutex) };
    me.slot.awake.store(0, Ordering::Relaxed);
    // It may have been for this one.
    if SIGNALS.load(Ordering::Acquire) != before {
        me.slot.poked.store(1, Ordering::Relaxed);
    }
}

/// Whoever has it is about to let go of it.
///
/// # Safety
/// The calling thread does not hold it.
unsafe fn lock_soon(mutex: &real::Mutex) {
    for _ in 0..TRIES {
        // SAFETY: as the caller says.
        if unsafe { mutex.try_lock() } {
            return;
        }
        spin_loop();
    }
    // SAFETY: as the caller says, and every try above failed.
    unsafe { mutex.lock() };
}
