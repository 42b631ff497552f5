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
//! A waiter that is signalled looks again whether there is an owner: so the signal of a release goes to
//! whom the policy chooses. How the waiters wait, and how a slice ends, is in `line`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use deconvoy_gil::Whose;
use deconvoy_policy::WaiterId;

use super::{
    Kin, MUTEX, acquired, arrives, awake, begin, is_inside, kin, line, peers, released, set_free,
    steered, wakes,
};
use crate::host::with_me;
use crate::layout::COND_BYTES;
use crate::real::{self, ETIMEDOUT};
use crate::sys;
use crate::threads::{Me, other};

/// `rb_global_vm_lock_t`, in bytes from its mutex; the same from 2.6 to 3.2.
const OWNER: usize = 8; // before
const WAITERS: usize = 40;
const SWITCH_COND: usize = 72;
const SWITCH_WAIT_COND: usize = SWITCH_COND + COND_BYTES;

/// What the owner's word was when the present holder took it.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// How often one that yields was told that another one has the lock.
pub static SWITCHES: AtomicU32 = AtomicU32::new(0);

/// Whom a signal goes to, as number + 1. Written and read with the lock's mutex held.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

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
        // SAFETY: Ruby has made this mutex.
        unsafe { real::Mutex(mutex as *mut c_void).spin_first() };
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

/// Whether this is what one waits on that has yielded until another one has the lock.
pub fn is_switch_cond(cond: usize) -> bool {
    cond.wrapping_sub(MUTEX.load(Ordering::Relaxed)) == SWITCH_COND
}

pub fn is_found() -> bool {
    MUTEX.load(Ordering::Relaxed) != 0 && kin() == Kin::Queue
}

pub fn owner() -> usize {
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
            awake::takes_it_home(me);
            line::slice_begins();
            me.slot.doing.store(0, Ordering::Relaxed);
            set_free(me);
            line::hurry(acquired(me));
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
            awake::enters(me, cond);
            let wish = arrives(me, passes, peers::woke(me));
            line::comes(me, wish);
        }
    });
    is_for_it
}

/// A signal. Whether it goes to another one.
pub fn signals(cond: usize) -> bool {
    let from = cond.wrapping_sub(MUTEX.load(Ordering::Relaxed));
    if from == SWITCH_COND || from == SWITCH_WAIT_COND {
        // Whoever stays awake for it looks with the mutex held, as the caller has it now.
        SWITCHES.fetch_add(u32::from(from == SWITCH_COND), Ordering::Relaxed);
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
            Whose::Undecided(_) => line::keeper(),
            Whose::Anyones => None,
        };
        CHOSEN.store(chosen.map_or(0, |chosen| chosen.who.0 + 1), Ordering::Relaxed);
        chosen.is_some_and(|chosen| chosen.slot.cond.load(Ordering::Relaxed) != cond)
    });
    let is_redirected = is_redirected.unwrap_or(false);
    if !is_redirected {
        awake::signals(cond);
    }
    is_redirected
}

pub fn whose() -> Whose {
    steered(|steer, now| steer.whose(now)).unwrap_or(Whose::Anyones)
}

/// A waiter that is about to be woken to have the lock; `None`: it does not wait.
pub fn call(who: WaiterId) -> Option<Me> {
    let next = other(who).filter(|next| next.slot.wants.load(Ordering::Relaxed) == 1)?;
    if !awake::is_awake(next) {
        wakes(next, false);
    }
    Some(next)
}

pub unsafe extern "C" fn signal_chosen(_: *mut c_void) -> c_int {
    let chosen = CHOSEN.load(Ordering::Relaxed).checked_sub(1);
    chosen.and_then(|who| other(WaiterId(who))).inspect(|&chosen| awake::wake(chosen));
    0
}

/// In a forked child: Ruby makes its lock anew, at the same place, and the calling thread takes it.
pub fn forked() {
    HELD.store(0, Ordering::Relaxed);
    line::forked();
}
