//! Ruby from 3.3 on: a thread keeps time for all (`timer_thread_func`), and there is a hook for what
//! threads do.
//!
//! What the time-keeper does is in `keeper`. Who is next is Ruby's to say: the first that came. If that is
//! another one that computes, it is asked at once, too.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use deconvoy_gil::System;
use deconvoy_policy::{Nanos, WaiterId};

use super::{
    Kin, Wish, acquired, arrives, awake, begin, give_up, is_inside, keeper, kin, looks_again,
    released, steered, wakes, wish, yields,
};
use crate::host::with_me;
use crate::real;
use crate::sys::{Linux, Timespec};
use crate::threads::{self, Me, other};
use crate::{config, loader, peers};

/// What a thread is doing: bits of `Slot::doing`, written by the thread itself.
pub mod doing {
    /// It gives the lock up, and has not let go of the mutex since.
    pub const SUSPENDS: u32 = 1;
    /// It has come back in line since: it yields, and does nothing else meanwhile.
    pub const YIELDS: u32 = 2;
    /// It is about to yield once more, from `unlock_and_yield`.
    pub const CALLS: u32 = 4;
    /// It yields from there.
    pub const IS_NESTED: u32 = 8;
}

/// What the hook may be told (`include/ruby/thread.h`).
const READY: u32 = 1 << 1;
const RESUMED: u32 = 1 << 2;
const SUSPENDED: u32 = 1 << 3;
const EXITED: u32 = 1 << 4;

/// Ruby's functions, when they were found.
static GET: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static SET: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static KEY: AtomicU32 = AtomicU32::new(0);
static RACTOR_GET: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static RACTOR_KEY: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

type Callback = unsafe extern "C" fn(u32, *const usize, *mut c_void);
type AddHook = unsafe extern "C" fn(Callback, u32, *mut c_void) -> *mut c_void;
type KeyCreate = unsafe extern "C" fn() -> c_int;
type Get = unsafe extern "C" fn(usize, c_int) -> *mut c_void;
type Set = unsafe extern "C" fn(usize, c_int, *mut c_void);
type RactorKey = unsafe extern "C" fn(*const c_void) -> *mut c_void;
type RactorGet = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type RactorSet = unsafe extern "C" fn(*mut c_void, *mut c_void);
type IsNative = unsafe extern "C" fn() -> c_int;

/// The interpreter is there, or nearly; the calling thread has its lock, if it is one of Ruby's.
pub fn starts() {
    if is_begun() || kin() != Kin::Ticks || !is_of_ruby() {
        return;
    }
    // Threads that share native ones: what a native thread does says nothing of them.
    if config::get().shares_threads {
        return;
    }
    let add = loader::symbol(c"rb_internal_thread_add_event_hook");
    let key = loader::symbol(c"rb_internal_thread_specific_key_create");
    let get = loader::symbol(c"rb_internal_thread_specific_get");
    let set = loader::symbol(c"rb_internal_thread_specific_set");
    let ractor_key = loader::symbol(c"rb_ractor_local_storage_ptr_newkey");
    let ractor_get = loader::symbol(c"rb_ractor_local_storage_ptr");
    let ractor_set = loader::symbol(c"rb_ractor_local_storage_ptr_set");
    let all = [add, key, get, set, ractor_key, ractor_get, ractor_set];
    if all.iter().any(|at| at.is_null()) {
        return;
    }
    // SAFETY: the types are those of `include/ruby/thread.h` and `ractor.h`; the calling thread has
    // the lock, which these functions ask for.
    unsafe {
        let new: RactorKey = core::mem::transmute(ractor_key);
        let mark: RactorSet = core::mem::transmute(ractor_set);
        let main = new(core::ptr::null());
        mark(main, main);
        RACTOR_KEY.store(main, Ordering::Relaxed);
        RACTOR_GET.store(ractor_get, Ordering::Relaxed);
        let key: KeyCreate = core::mem::transmute(key);
        KEY.store(key().cast_unsigned(), Ordering::Relaxed);
        SET.store(set, Ordering::Relaxed);
        GET.store(get, Ordering::Release);
        begin();
        with_me(acquired);
        let add: AddHook = core::mem::transmute(add);
        add(happens, READY | RESUMED | SUSPENDED | EXITED, core::ptr::null_mut());
    }
}

/// The number of a Ruby thread, if it was seen.
fn seen(thread: usize) -> Option<Me> {
    let get = GET.load(Ordering::Acquire);
    if get.is_null() {
        return None;
    }
    // SAFETY: as in `starts`; the key is ours.
    let number = unsafe {
        let get: Get = core::mem::transmute(get);
        get(thread, KEY.load(Ordering::Relaxed).cast_signed()) as usize
    };
    number.checked_sub(1).and_then(|number| other(WaiterId(number as u32)))
}

fn note(thread: usize, me: Me) {
    // SAFETY: as in `starts`.
    unsafe {
        let set: Set = core::mem::transmute(SET.load(Ordering::Relaxed));
        let number = me.who.0 as usize + 1;
        set(thread, KEY.load(Ordering::Relaxed).cast_signed(), number as *mut c_void);
    }
}

/// Called by whoever makes it happen, under locks of Ruby's: nothing of Ruby's may be called here but
/// what reads and writes a thread's own words.
unsafe extern "C" fn happens(event: u32, data: *const usize, _: *mut c_void) {
    // SAFETY: from 3.3 on there is data, and the thread is its first word.
    let Some(&thread) = (unsafe { data.as_ref() }) else { return };
    match event {
        // Also of another thread than the calling one.
        READY => {
            with_me(|me| {
                let Some(ready) = seen(thread) else {
                    return keeper::comes_anew();
                };
                let mut by_itself = false;
                if ready.who == me.who {
                    me.slot.wants.store(1, Ordering::Relaxed);
                    let doing = me.slot.doing.load(Ordering::Relaxed);
                    if doing & doing::SUSPENDS != 0 {
                        by_itself = steered(|steer, _| steer.is_voluntary(me.who)) == Some(true);
                        me.slot.doing.store(doing | doing::YIELDS, Ordering::Relaxed);
                    }
                }
                let is_holder = me.slot.holds.load(Ordering::Relaxed) > 0;
                let by = (is_holder && ready.who != me.who).then_some(me.who);
                let is_me = ready.who == me.who;
                if is_me {
                    keeper::comes(me);
                }
                let wish = arrives(ready, by_itself, by.or_else(|| peers::woke(ready)));
                if !is_me {
                    keeper::hurry(wish);
                }
            });
        }
        RESUMED => {
            with_me(|me| {
                if seen(thread).is_none_or(|was| was.who != me.who) {
                    if !is_in_main_ractor() {
                        return give_up();
                    }
                    keeper::has_come();
                    note(thread, me);
                }
                keeper::has_entered(me);
                keeper::slice_begins();
                let wish = acquired(me);
                // One that yields may do so again at once.
                if me.slot.doing.load(Ordering::Relaxed) & doing::YIELDS == 0 {
                    yields::goes_on(me, wish);
                }
            });
        }
        SUSPENDED => {
            with_me(|me| {
                let is_nested = me.slot.doing.load(Ordering::Relaxed) & doing::CALLS != 0;
                let nested = if is_nested { doing::IS_NESTED } else { 0 };
                let known = super::MUTEX.load(Ordering::Relaxed) != 0;
                let suspends = if known { doing::SUSPENDS } else { 0 };
                me.slot.doing.store(nested | suspends, Ordering::Relaxed);
                released(me);
            });
        }
        // The native thread may be used for another one.
        EXITED => {
            with_me(|me| {
                released(me);
                threads::renew(me);
            });
        }
        _ => {}
    }
}

pub fn is_begun() -> bool {
    a_function() != 0
}

/// A function of Ruby's own; 0: not known.
pub fn a_function() -> usize {
    GET.load(Ordering::Relaxed) as usize
}

/// Before a wait on a condition variable: one that comes back in line waits with the lock's mutex.
pub fn waits(mutex: usize) {
    with_me(|me| {
        if me.slot.wants.load(Ordering::Relaxed) > 0 {
            super::MUTEX.store(mutex, Ordering::Relaxed);
            // SAFETY: Ruby has made this mutex.
            unsafe { real::Mutex(mutex as *mut c_void).spin_first() };
        }
    });
}

/// Before a wait with the lock's mutex.
pub fn waits_on(cond: usize) {
    with_me(|me| {
        awake::enters(me, cond);
    });
}

/// That wait. It may end early: Ruby looks itself whether it is over, and waits again.
pub unsafe extern "C" fn wait(cond: *mut c_void, mutex: *mut c_void) -> c_int {
    // SAFETY: the caller's mutex, which it holds.
    let sleeps = with_me(|me| unsafe { waits_awake(me, mutex) });
    // SAFETY: the caller's condition variable, which goes by the monotonic clock, and mutex, which it
    // holds.
    unsafe {
        match sleeps {
            Some(None) => {}
            Some(Some(Some(until))) => {
                real::timed_wait(cond, mutex, &Timespec::at(until));
            }
            Some(Some(None)) | None => {
                real::wait(cond, mutex);
            }
        }
    };
    0
}

/// Has the holder asked, and waits awake if that is better than to sleep. `Some`: it is to sleep, until
/// then if that is said.
///
/// # Safety
/// The calling thread holds `mutex`, and does again afterwards.
unsafe fn waits_awake(me: Me, mutex: *mut c_void) -> Option<Option<Nanos>> {
    let again = looks_again(me);
    let until = again.map(|(until, _)| until);
    let comes = keeper::has_entered(me);
    // SAFETY: as the caller says.
    let awake = unsafe { awake::settles(me, mutex, until) };
    if awake.is_none() && again.is_none() && !comes {
        return Some(until);
    }
    let yields = me.slot.doing.load(Ordering::Relaxed) & doing::YIELDS != 0;
    let asks = || {
        if let Some((_, tries)) = again {
            keeper::prod(tries);
            // The time-keeper may be on this core, and there is no other one for it.
            if !keeper::has_ticked() {
                Linux.yield_now();
            }
        } else if comes {
            let wish = steered(wish).unwrap_or(Wish::NONE);
            // Who has it after a yield sees by itself whether it is asked.
            keeper::hurry(Wish { asks: wish.asks && !yields, ..wish });
        }
    };
    // SAFETY: as above.
    unsafe { awake::stay(me, mutex, awake.unwrap_or(Nanos::ZERO), asks, || false) };
    let is_over = awake::was_poked(me) || awake.is_some();
    (!is_over).then_some(until)
}

/// A signal, of any condition variable. One that has the lock by now is to run where it was told to.
pub fn signals(cond: usize) {
    awake::signals(cond);
    let Some(next) = awake::waiter_on(cond) else { return };
    with_me(|me| {
        if is_inside(me) && !awake::is_awake(next) {
            wakes(next, true);
        } else if is_inside(me) {
            steered(|steer, _| steer.handed(next.seat()));
        }
    });
}

/// Whether the calling thread, one of Ruby's, is in the Ractor that began; each has a lock.
fn is_in_main_ractor() -> bool {
    // SAFETY: as in `starts`; it looks a word up.
    unsafe {
        let get: RactorGet = core::mem::transmute(RACTOR_GET.load(Ordering::Relaxed));
        !get(RACTOR_KEY.load(Ordering::Relaxed)).is_null()
    }
}

/// Whether the calling thread is one of Ruby's.
pub fn is_of_ruby() -> bool {
    let at = loader::symbol(c"ruby_native_thread_p");
    // SAFETY: the type is Ruby's; it may be called by any thread.
    !at.is_null() && unsafe { core::mem::transmute::<*mut c_void, IsNative>(at)() != 0 }
}
