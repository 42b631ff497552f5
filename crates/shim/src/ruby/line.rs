//! How threads wait in the queue of Ruby 2.6 to 3.2 (see `queue`), and how a slice ends there.
//!
//! One of the waiters keeps time: when its timed wait is over, for whatever reason, it marks the holder's
//! slice as over. So the wait is over when the policy asks.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use deconvoy_gil::{Keep, System, UNTAKEN, Whose};
use deconvoy_policy::{Nanos, WaiterId};

use super::queue::{self, SWITCHES, call, owner, whose};
use super::{Wish, awake, keep_other, looks_again, place_to_look, steered, wish};
use crate::host::with_me;
use crate::real::{self, ETIMEDOUT};
use crate::sys::{Linux, Timespec};
use crate::threads::{Me, other};

/// The waiter that keeps time, as number + 1; 0: none does.
static KEEPER: AtomicU32 = AtomicU32::new(0);

/// When it looks again by itself.
static WAKES: AtomicU64 = AtomicU64::new(0);

/// When the present holder's slice may be marked as over, and how much later again. Written and read
/// with the lock's mutex held.
static DUE: AtomicU64 = AtomicU64::new(0);
static STEP: AtomicU64 = AtomicU64::new(0);

/// The holder was asked, and holds on: it may be asked again after so long, then after twice that, ….
const AGAIN: Nanos = Nanos::from_millis(1);
const AGAIN_AT_MOST: Nanos = Nanos::from_millis(50);

/// The one that keeps time looks so soon by itself whether it has to. Those for whom the holder was asked
/// have it look sooner.
const AGAIN_BY_ITSELF: Nanos = Nanos::from_millis(10);

/// One that has yielded stays awake so long for the next one to take the lock.
const SWITCH_AWAKE: Nanos = Nanos::from_micros(50);

/// It looks so soon again whether the lock was taken, and then after twice as long, ….
const SWITCH_PAUSE: Nanos = Nanos::from_micros(100);

/// The waiter that keeps time, if there is one.
pub fn keeper() -> Option<Me> {
    let number = KEEPER.load(Ordering::Relaxed).checked_sub(1);
    number.and_then(|number| other(WaiterId(number)))
}

/// The calling thread has the lock from now on, and holds the lock's mutex.
pub fn slice_begins() {
    DUE.store(0, Ordering::Relaxed);
    STEP.store(AGAIN.0, Ordering::Relaxed);
}

/// The calling thread has arrived. If the holder is asked for it, that is done when it has let go of the
/// mutex, which who asks needs.
pub(super) fn comes(me: Me, wish: Wish) {
    if steered(|steer, _| steer.asks_for(me.who)) != Some(true) {
        hurry(wish);
    }
}

/// The waiter that keeps time looks again, if it would look too late.
pub(super) fn hurry(wish: Wish) {
    if wish.asks || wish.timer.0 < WAKES.load(Ordering::Relaxed) {
        prod(0);
    }
}

/// The waiter that keeps time looks now; `tries`: how often it was told to and did not.
fn prod(tries: u32) {
    let Some(keeper) = keeper() else { return };
    let keep = place_to_look(tries);
    if keep != Keep::Anywhere {
        keep_other(keeper, keep);
    }
    awake::wake(keeper);
}

/// The timed wait of the waiter that keeps time. Not a point of cancellation, which Ruby does not use.
pub unsafe extern "C" fn keep_time(
    cond: *mut c_void,
    mutex: *mut c_void,
    deadline: *const Timespec,
) -> c_int {
    // SAFETY: as the caller of the C library's function says.
    let deadline = unsafe { (*deadline).nanos() };
    let number = with_me(|me| me.who.0 + 1).unwrap_or(0);
    KEEPER.store(number, Ordering::Relaxed);
    let result = wait_in_line(cond, mutex, Some(deadline));
    KEEPER.store(0, Ordering::Relaxed);
    result
}

/// The wait of any other waiter.
pub unsafe extern "C" fn wait(cond: *mut c_void, mutex: *mut c_void) -> c_int {
    wait_in_line(cond, mutex, None)
}

/// The wait of one that has yielded until another one has the lock. It takes a lock that it finds free,
/// whoever was called.
pub unsafe extern "C" fn wait_for_switch(cond: *mut c_void, mutex: *mut c_void) -> c_int {
    let before = SWITCHES.load(Ordering::Relaxed);
    let is_switched = || SWITCHES.load(Ordering::Relaxed) != before;
    if queue::is_switch_cond(cond as usize) {
        let end = Linux.now().after(SWITCH_AWAKE);
        with_me(|me| {
            // Something old.
            awake::was_poked(me);
            // SAFETY: the caller holds it.
            unsafe { awake::stay(me, mutex, end, || {}, is_switched) };
        });
    }
    if !is_switched() {
        // SAFETY: the caller's condition variable and mutex, which it holds.
        unsafe { real::wait(cond, mutex) };
    }
    let is_anothers = || {
        let is_anothers = with_me(|me| match whose() {
            Whose::Of(who) => who != me.who,
            Whose::Undecided(_) => true,
            Whose::Quickest(_) | Whose::Anyones => false,
        });
        owner() == 0 && is_anothers == Some(true)
    };
    let end = Linux.now().after(UNTAKEN);
    let mut pause = SWITCH_PAUSE;
    while is_anothers() && Linux.now() < end {
        // SAFETY: as above.
        unsafe { real::timed_wait(cond, mutex, &Timespec::at(Linux.now().after(pause))) };
        pause = Nanos(2 * pause.0);
    }
    0
}

/// Waits until the lock is free and the calling thread may take it; or there is something for Ruby to
/// do: the slice or `deadline` is over, for the one that keeps time; others are woken for any reason.
fn wait_in_line(cond: *mut c_void, mutex: *mut c_void, deadline: Option<Nanos>) -> c_int {
    let mut kept = None;
    let mut is_woken = false;
    loop {
        let next = with_me(|me| match (owner(), deadline) {
            (0, _) => when_free(me, &mut kept),
            (_, Some(deadline)) => {
                kept = None;
                when_asked_to_look(deadline)
            }
            // A signal may have come when its time was over: Ruby looks what it was for.
            (_, None) if is_woken => Next::Return(0),
            (_, None) => match looks_again(me) {
                Some((until, tries)) => Next::Prod(until, tries),
                None => Next::Wait(None),
            },
        });
        let next = next.unwrap_or(Next::Return(0));
        let (until, tries) = match next {
            Next::Return(result) => return result,
            Next::Wait(until) => (until, None),
            Next::Prod(until, tries) => (Some(until), Some(tries)),
        };
        if deadline.is_some() {
            WAKES.store(until.unwrap_or(Nanos::MAX).0, Ordering::Relaxed);
        }
        // SAFETY: the caller's mutex, which it holds.
        let stayed = with_me(|me| unsafe { stays_awake(me, mutex, until, tries) });
        if let Some(Some(poked)) = stayed {
            is_woken |= poked;
            continue;
        }
        // SAFETY: the caller's condition variable and mutex, which it holds.
        unsafe {
            match until {
                Some(until) => real::timed_wait(cond, mutex, &Timespec::at(until)),
                None => real::wait(cond, mutex),
            }
        };
        is_woken = true;
    }
}

/// Waits awake, if it is better than to sleep: whether the thread was told to look. `None`: it is to sleep.
///
/// # Safety
/// The calling thread holds `mutex`, and does again afterwards.
unsafe fn stays_awake(
    me: Me,
    mutex: *mut c_void,
    until: Option<Nanos>,
    tries: Option<u32>,
) -> Option<bool> {
    let was = owner();
    // SAFETY: as the caller says.
    let awake = unsafe { awake::settles(me, mutex, until) };
    if awake.is_none() && tries.is_none() {
        return None;
    }
    let asks = || {
        if let Some(tries) = tries {
            prod(tries);
            // The one that was told to may be on this core, and there is no other one for it.
            if due() == Nanos::ZERO {
                Linux.yield_now();
            }
        }
    };
    if owner() == was {
        // SAFETY: as above.
        unsafe { awake::stay(me, mutex, awake.unwrap_or(Nanos::ZERO), asks, || owner() != was) };
    }
    let poked = awake::was_poked(me);
    (awake.is_some() || poked || owner() != was).then_some(poked)
}

enum Next {
    Return(c_int),
    /// Until then, if nobody wakes it.
    Wait(Option<Nanos>),
    /// The same, and the one that keeps time is to look, which was told to so often.
    Prod(Nanos, u32),
}

/// A waiter looks at the free lock. `kept`: for whom it is free, if that is decided, and since when.
fn when_free(me: Me, kept: &mut Option<(Option<WaiterId>, Nanos)>) -> Next {
    let seen = steered(|steer, now| {
        let before = steer.next();
        steer.look(now);
        (before, steer.whose(now), now)
    });
    let Some((before, whose, now)) = seen else { return Next::Return(0) };
    let (who, until) = match whose {
        Whose::Of(who) if who != me.who => (Some(who), Nanos::MAX),
        Whose::Undecided(until) => (None, until),
        Whose::Of(_) | Whose::Quickest(_) | Whose::Anyones => return Next::Return(0),
    };
    let (_, since) = *kept.insert(kept.filter(|one| one.0 == who).unwrap_or((who, now)));
    let end = since.after(UNTAKEN);
    if now >= end {
        return Next::Return(0);
    }
    // Whoever let go of it has called the one that was chosen then.
    if let Some(who) = who.filter(|_| before != who) {
        match call(who) {
            None => return Next::Return(0),
            Some(waiter) => awake::wake(waiter),
        }
    }
    Next::Wait(Some(until.min(end)))
}

/// The one that keeps time looks at the holder.
fn when_asked_to_look(deadline: Nanos) -> Next {
    let Wish { asks, timer } = steered(wish).unwrap_or(Wish::NONE);
    let now = Linux.now();
    if now >= deadline || (asks && now >= due()) {
        if asks {
            marked(now);
        }
        return Next::Return(ETIMEDOUT);
    }
    let again = if asks { due().max(now.after(AGAIN_BY_ITSELF)) } else { Nanos::MAX };
    Next::Wait(Some(deadline.min(again).min(timer)))
}

/// When the slice of the present holder may be marked as over (again).
fn due() -> Nanos {
    Nanos(DUE.load(Ordering::Relaxed))
}

fn marked(now: Nanos) {
    // Not at once: the holder needs the mutex to yield.
    let step = STEP.load(Ordering::Relaxed).max(AGAIN.0);
    DUE.store(now.after(Nanos(step)).0, Ordering::Relaxed);
    STEP.store((2 * step).min(AGAIN_AT_MOST.0), Ordering::Relaxed);
}

/// In a forked child.
pub fn forked() {
    KEEPER.store(0, Ordering::Relaxed);
    slice_begins();
}
