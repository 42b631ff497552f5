//! Ruby 2.6 to 3.2: the lock is a word behind a mutex, and each waiter has a condition variable.
//!
//! | call, with the lock's mutex | by | says |
//! |---|---|---|
//! | `pthread_cond_timedwait(own)` | a waiter, the one that keeps time | it waits |
//! | `pthread_cond_wait(own)` | any other waiter | it waits |
//! | `pthread_cond_signal(another's)`, no owner | the holder | released; the other one is the head of the queue |
//! | `pthread_cond_signal(another's)`, an owner | who has taken it | the other one is to keep time |
//! | `pthread_cond_wait(switch_cond)` | who has yielded | waits for another to take it |
//! | `pthread_mutex_unlock`, an owner | who had it not | acquired |
//! | `pthread_mutex_unlock`, no owner | who had it | released |
//!
//! When the timed wait is over, for whatever reason, the waiter marks the holder's slice as over: so
//! it ends when the policy asks. A waiter that is signalled looks again whether there is an owner: so
//! the signal of a release goes to whom the policy chooses.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use deconvoy_gil::System;
use deconvoy_policy::Nanos;

use super::{Kin, MUTEX, Wish, acquired, arrives, begin, kin, released, steered, wish};
use crate::host::with_me;
use crate::layout::COND_BYTES;
use crate::sys::{Linux, Timespec};
use crate::threads::{Me, other};
use crate::{real, sys};

/// `rb_global_vm_lock_t`, in bytes from its mutex; the same from 2.6 to 3.2.
const OWNER: usize = 8; // before
const WAITERS: usize = 40;
const SWITCH_COND: usize = 72;
const SWITCH_WAIT_COND: usize = SWITCH_COND + COND_BYTES;

/// What the owner's word was when the present holder took it.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The condition variable of the waiter that keeps time; 0: none does.
static TIMER: AtomicUsize = AtomicUsize::new(0);

/// When it looks again by itself.
static WAKES: AtomicU64 = AtomicU64::new(0);

/// Whom a signal goes to. Written and read with the lock's mutex held.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

const ETIMEDOUT: c_int = 110;

/// When the present holder's slice may be marked as over, and how much later again. Written and read
/// with the lock's mutex held.
static DUE: AtomicU64 = AtomicU64::new(0);
static STEP: AtomicU64 = AtomicU64::new(0);

/// The holder was asked, and holds on: it is asked again after so long, then after twice that, ….
const AGAIN: Nanos = Nanos::from_millis(1);
const AGAIN_AT_MOST: Nanos = Nanos::from_millis(50);

/// Where a lock may be, if what is there says so when it is made.
static CANDIDATES: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static CANDIDATES_NEXT: AtomicUsize = AtomicUsize::new(0);

/// A condition variable is being made; `is_second`: behind one that was made before.
///
/// Ruby makes those of its lock, and then fills in the rest. If that is so when the main thread makes
/// the next one, it has the lock: it starts a thread.
pub fn cond_initialised(address: usize, is_second: bool) {
    if kin() != Kin::Queue || MUTEX.load(Ordering::Relaxed) != 0 {
        return;
    }
    let found = candidates().find(|&mutex| is_a_lock(mutex));
    if let Some(mutex) = found.filter(|_| sys::thread_id() == sys::pid())
        && find(mutex)
        && owner() != 0
    {
        unlocks();
    }
    if is_second {
        let first = address.wrapping_sub(COND_BYTES);
        let next = CANDIDATES_NEXT.fetch_add(1, Ordering::Relaxed) % CANDIDATES.len();
        if let Some(place) = CANDIDATES.get(next) {
            place.store(first.wrapping_sub(SWITCH_COND), Ordering::Relaxed);
        }
    }
}

fn candidates() -> impl Iterator<Item = usize> {
    CANDIDATES.iter().map(|one| one.load(Ordering::Relaxed)).filter(|&mutex| mutex != 0)
}

/// This is the lock. Whether it was not known before.
fn find(mutex: usize) -> bool {
    let is_new = MUTEX.compare_exchange(0, mutex, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_new {
        begin();
    }
    is_new
}

/// Before a wait with a time limit, if the lock is not known: is it for that?
pub fn discover(cond: usize, mutex: usize) {
    if kin() != Kin::Queue || MUTEX.load(Ordering::Relaxed) != 0 {
        return;
    }
    let from = cond.wrapping_sub(mutex);
    let is_it = candidates().any(|candidate| candidate == mutex)
        && from != SWITCH_COND
        && from != SWITCH_WAIT_COND;
    // Somebody has it, and the list of waiters is not empty.
    if is_it
        && let Some([owner]) = sys::peek::<1>(mutex.wrapping_sub(OWNER))
        && let Some([first]) = sys::peek::<1>(mutex.wrapping_add(WAITERS))
        && owner != 0
        && first != mutex.wrapping_add(WAITERS) as u64
    {
        find(mutex);
    }
}

/// Whether the memory at a mutex is a lock of Ruby's for which nobody waits: an empty list of
/// waiters, nobody to keep time, and how the last one that did ended.
fn is_a_lock(mutex: usize) -> bool {
    let list = mutex.wrapping_add(WAITERS);
    let Some([first, last, timer, ended]) = sys::peek::<4>(list) else { return false };
    let empty = list as u64;
    first == empty && last == empty && timer == 0 && ended as u32 == ETIMEDOUT.unsigned_abs()
}

pub fn is_found() -> bool {
    kin() == Kin::Queue && MUTEX.load(Ordering::Relaxed) != 0
}

fn owner() -> usize {
    let at = MUTEX.load(Ordering::Relaxed).wrapping_sub(OWNER);
    // SAFETY: a word of the lock's struct, which lives as long as the process; the calling thread
    // holds the mutex that guards it.
    unsafe { (at as *const usize).read_volatile() }
}

/// Whether the calling thread holds the lock's mutex.
fn is_inside(me: Me) -> bool {
    let mutex = MUTEX.load(Ordering::Relaxed);
    // SAFETY: Ruby has made this mutex, and never destroys it.
    mutex != 0
        && unsafe { real::Mutex(mutex as *mut c_void).owner() }
            == me.slot.native_id.load(Ordering::Relaxed)
}

/// Before the lock's mutex is let go of.
pub fn unlocks() {
    with_me(|me| {
        let (holds, owner) = (me.slot.holds.load(Ordering::Relaxed) > 0, owner());
        if holds && owner == 0 {
            gives_up(me);
        } else if !holds && owner != 0 && owner != HELD.load(Ordering::Relaxed) {
            HELD.store(owner, Ordering::Relaxed);
            DUE.store(0, Ordering::Relaxed);
            STEP.store(AGAIN.0, Ordering::Relaxed);
            hurry(acquired(me));
        }
    });
}

fn gives_up(me: Me) {
    HELD.store(0, Ordering::Relaxed);
    released(me);
}

/// Before a wait on one of the condition variables, with the lock's mutex held. Whether it is for
/// the lock.
pub fn waits(cond: usize) -> bool {
    let from = cond.wrapping_sub(MUTEX.load(Ordering::Relaxed));
    let is_for_it = from != SWITCH_COND && from != SWITCH_WAIT_COND;
    with_me(|me| {
        if me.slot.holds.load(Ordering::Relaxed) > 0 {
            gives_up(me);
        }
        if is_for_it && me.slot.wants.swap(1, Ordering::Relaxed) == 0 {
            me.slot.cond.store(cond, Ordering::Relaxed);
            hurry(arrives(me));
        }
    });
    is_for_it
}

/// The waiter that keeps time looks again, if it would look too late.
fn hurry(wish: Wish) {
    let timer = TIMER.load(Ordering::Relaxed);
    if timer != 0 && (wish.asks || wish.timer.0 < WAKES.load(Ordering::Relaxed)) {
        real::signal(timer);
    }
}

/// A signal. Whether it goes to another one.
pub fn signals(cond: usize) -> bool {
    let from = cond.wrapping_sub(MUTEX.load(Ordering::Relaxed));
    if from == SWITCH_COND || from == SWITCH_WAIT_COND {
        return false;
    }
    let is_redirected = with_me(|me| {
        // The waiter that keeps time wakes threads for other reasons, too, with the mutex held.
        if me.slot.holds.load(Ordering::Relaxed) == 0 || !is_inside(me) || owner() != 0 {
            return false;
        }
        gives_up(me);
        let next = steered(|steer, _| steer.next()).flatten().and_then(other);
        let waits = next.filter(|next| next.slot.wants.load(Ordering::Relaxed) == 1);
        let chosen = waits.map_or(0, |next| next.slot.cond.load(Ordering::Relaxed));
        CHOSEN.store(chosen, Ordering::Relaxed);
        chosen != 0 && chosen != cond
    });
    is_redirected.unwrap_or(false)
}

pub unsafe extern "C" fn signal_chosen(_: *mut c_void) -> c_int {
    real::signal(CHOSEN.load(Ordering::Relaxed));
    0
}

/// The timed wait of the waiter that keeps time. Not a point of cancellation, which Ruby does not use.
pub unsafe extern "C" fn keep_time(
    cond: *mut c_void,
    mutex: *mut c_void,
    deadline: *const Timespec,
) -> c_int {
    // SAFETY: as the caller of the C library's function says.
    let deadline = unsafe { (*deadline).nanos() };
    TIMER.store(cond as usize, Ordering::Relaxed);
    let result = loop {
        let Wish { asks, timer } = steered(wish).unwrap_or(Wish::NONE);
        let now = Linux.now();
        if owner() == 0 {
            break 0;
        }
        if now >= deadline || (asks && now >= due()) {
            if asks {
                marked(now);
            }
            break ETIMEDOUT;
        }
        let until = if asks { due().min(deadline) } else { deadline };
        let until = until.min(timer);
        WAKES.store(until.0, Ordering::Relaxed);
        let until = Timespec::at(until);
        // SAFETY: the caller's condition variable and mutex, which it holds.
        unsafe { real::timed_wait(cond, mutex, &until) };
    };
    TIMER.store(0, Ordering::Relaxed);
    result
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

/// In a forked child: Ruby makes its lock anew, at the same place, and the calling thread takes it.
pub fn forked() {
    HELD.store(0, Ordering::Relaxed);
    TIMER.store(0, Ordering::Relaxed);
    DUE.store(0, Ordering::Relaxed);
    STEP.store(AGAIN.0, Ordering::Relaxed);
}
