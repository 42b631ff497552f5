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
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use deconvoy_gil::{Keep, System, UNTAKEN, Whose};
use deconvoy_policy::{Nanos, WaiterId};

use super::{
    Kin, MUTEX, Wish, acquired, arrives, begin, is_inside, keep_other, kin, looks_again, peers,
    place_to_look, released, steered, wakes, wish,
};
use crate::host::with_me;
use crate::layout::COND_BYTES;
use crate::real::{self, ETIMEDOUT};
use crate::sys::{self, Linux, Timespec};
use crate::threads::{Me, other};

/// `rb_global_vm_lock_t`, in bytes from its mutex; the same from 2.6 to 3.2.
const OWNER: usize = 8; // before
const WAITERS: usize = 40;
const SWITCH_COND: usize = 72;
const SWITCH_WAIT_COND: usize = SWITCH_COND + COND_BYTES;

/// What the owner's word was when the present holder took it.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The condition variable of the waiter that keeps time; 0: none does.
static TIMER: AtomicUsize = AtomicUsize::new(0);

/// Who that is, as number + 1.
static TIMER_WHO: AtomicU32 = AtomicU32::new(0);

/// When it looks again by itself.
static WAKES: AtomicU64 = AtomicU64::new(0);

/// Whom a signal goes to. Written and read with the lock's mutex held.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

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
    let matters = is_second || CANDIDATES_NEXT.load(Ordering::Relaxed) > 0;
    if !matters || MUTEX.load(Ordering::Relaxed) != 0 || kin() != Kin::Queue {
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
    CANDIDATES.iter().map(|at| at.load(Ordering::Relaxed)).filter(|&at| at != 0)
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
    // There are candidates in a Ruby of this kind only.
    if CANDIDATES_NEXT.load(Ordering::Relaxed) == 0 || MUTEX.load(Ordering::Relaxed) != 0 {
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
    MUTEX.load(Ordering::Relaxed) != 0 && kin() == Kin::Queue
}

fn owner() -> usize {
    let at = MUTEX.load(Ordering::Relaxed).wrapping_sub(OWNER);
    // SAFETY: a word of the lock's struct, which lives as long as the process; the calling thread
    // holds the mutex that guards it.
    unsafe { (at as *const usize).read_volatile() }
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
            me.slot.doing.store(0, Ordering::Relaxed);
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
        if !is_for_it {
            let by_itself = steered(|steer, _| steer.is_voluntary(me.who)) == Some(true);
            me.slot.doing.store(u32::from(by_itself), Ordering::Relaxed);
        } else if me.slot.wants.swap(1, Ordering::Relaxed) == 0 {
            let passes = me.slot.doing.swap(0, Ordering::Relaxed) != 0;
            me.slot.cond.store(cond, Ordering::Relaxed);
            hurry(arrives(me, passes, peers::woke(me)));
        }
    });
    is_for_it
}

/// The waiter that keeps time looks again, if it would look too late.
fn hurry(wish: Wish) {
    if wish.asks || wish.timer.0 < WAKES.load(Ordering::Relaxed) {
        prod(0);
    }
}

/// The waiter that keeps time looks now; `tries`: how often it was told to and did not.
fn prod(tries: u32) {
    let timer = TIMER.load(Ordering::Relaxed);
    if timer == 0 {
        return;
    }
    let number = TIMER_WHO.load(Ordering::Relaxed).checked_sub(1);
    let keep = place_to_look(tries);
    if keep != Keep::Anywhere
        && let Some(who) = number.and_then(|number| other(WaiterId(number)))
    {
        keep_other(who, keep);
    }
    real::signal(timer);
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
        let chosen = match whose() {
            Whose::Of(next) | Whose::Quickest(next) => call(next),
            // It sees to it that somebody gets it in time.
            Whose::Undecided(_) => TIMER.load(Ordering::Relaxed),
            Whose::Anyones => 0,
        };
        CHOSEN.store(chosen, Ordering::Relaxed);
        chosen != 0 && chosen != cond
    });
    is_redirected.unwrap_or(false)
}

fn whose() -> Whose {
    steered(|steer, now| steer.whose(now)).unwrap_or(Whose::Anyones)
}

/// What a waiter that is to have the lock waits on; 0: it does not wait.
fn call(who: WaiterId) -> usize {
    let next = other(who).filter(|next| next.slot.wants.load(Ordering::Relaxed) == 1);
    next.map_or(0, |next| {
        wakes(next, false);
        next.slot.cond.load(Ordering::Relaxed)
    })
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
    let number = with_me(|me| me.who.0 + 1).unwrap_or(0);
    TIMER_WHO.store(number, Ordering::Relaxed);
    TIMER.store(cond as usize, Ordering::Relaxed);
    let result = wait_in_line(cond, mutex, Some(deadline));
    TIMER.store(0, Ordering::Relaxed);
    result
}

/// The wait of any other waiter.
pub unsafe extern "C" fn wait(cond: *mut c_void, mutex: *mut c_void) -> c_int {
    wait_in_line(cond, mutex, None)
}

/// The wait of one that has yielded until another one has the lock. It takes a lock that it finds free,
/// whoever was called.
pub unsafe extern "C" fn wait_for_switch(cond: *mut c_void, mutex: *mut c_void) -> c_int {
    // SAFETY: the caller's condition variable and mutex, which it holds.
    let result = unsafe { real::wait(cond, mutex) };
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
    result
}

/// One that has yielded looks so soon again whether the lock was taken.
const SWITCH_PAUSE: Nanos = Nanos::from_micros(100);

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
            (_, None) => Next::Wait(looks_again(me, prod)),
        });
        let until = match next.unwrap_or(Next::Return(0)) {
            Next::Return(result) => return result,
            Next::Wait(until) => until,
        };
        if deadline.is_some() {
            WAKES.store(until.unwrap_or(Nanos::MAX).0, Ordering::Relaxed);
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

enum Next {
    Return(c_int),
    /// Until then, if nobody wakes it.
    Wait(Option<Nanos>),
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
            0 => return Next::Return(0),
            cond => real::signal(cond),
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
    let until = if asks { due().min(deadline) } else { deadline };
    Next::Wait(Some(until.min(timer)))
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
