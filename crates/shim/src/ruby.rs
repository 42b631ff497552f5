//! Ruby's lock (GVL), steered: its own scheduler stays in charge, and is told when a slice is over.
//!
//! Which thread uses the lock is seen from outside: in 2.6 to 3.2 at the calls on its mutex and
//! condition variables (`queue`), from 3.3 on by the hook that Ruby has for this (`ticks`). A policy
//! (`deconvoy_gil::Steer`) says whether the holder is to be asked. Ruby ends a slice when the thread
//! that keeps its time says so, after a wait that has run out: so the wait runs out then. Nothing of
//! Ruby's is written.
//!
//! Source: Ruby's `thread_pthread.c`, 2.7, 3.1 and 3.3.

mod awake;
mod hooks;
mod keeper;
mod kin;
pub mod line;
pub mod queue;
pub mod ticks;
mod yields;

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use deconvoy_gil::{Guard, Keep, Mutex, Steer, System, Waiting};
use deconvoy_policy::{Driver, MAX_THREADS, Nanos, WaiterId};
use deconvoy_trace::format::Kind;
use deconvoy_trace::notes::Notes;

pub use self::kin::{Kin, description, kin};
use crate::hooks::Target;
use crate::host::{enter_in_trace, with_me};
use crate::records::{Records, renewed};
use crate::sys::{self, Linux, OfThread};
use crate::threads::{Me, PARKERS, other};
use crate::tracing::{self, Here};
use crate::{config, names, peers, real, rseq};

/// A slice of Ruby's.
const SLICE: Nanos = Nanos::from_millis(100);

/// The lock's number in the trace.
const NUMBER: u8 = 0;

/// The mutex of the lock that is steered; 0: not found. Read by the assembly of
/// `pthread_mutex_unlock`.
pub static MUTEX: AtomicUsize = AtomicUsize::new(0);

pub fn is_mutex(address: usize) -> bool {
    address == MUTEX.load(Ordering::Relaxed) && address != 0
}

type Steering = Steer<'static, Notes<Here>>;

/// The one lock of this process that is steered: that of the main Ractor.
struct Place {
    guard: Mutex,
    records: UnsafeCell<Records>,
    waiting: UnsafeCell<*mut Waiting>,
    steer: UnsafeCell<MaybeUninit<Steering>>,
    /// See `state`.
    state: AtomicU32,
}

/// | state | means |
/// |---|---|
/// | `NONE` | no lock yet |
/// | `STEERED` | `steer` is there, and reached with `guard` held |
/// | `WATCHED` | there is no policy: noted in the trace |
/// | `OVER` | there is what this cannot serve |
mod state {
    pub const NONE: u32 = 0;
    pub const STEERED: u32 = 1;
    pub const WATCHED: u32 = 2;
    pub const OVER: u32 = 3;
}

// SAFETY: the cells are written in `begin`, by the one thread that makes the lock known, and reached
// with the guard held from then on.
unsafe impl Sync for Place {}

static PLACE: Place = Place {
    guard: Mutex::new(),
    records: UnsafeCell::new(Records::new()),
    waiting: UnsafeCell::new(core::ptr::null_mut()),
    steer: UnsafeCell::new(MaybeUninit::uninit()),
    state: AtomicU32::new(state::NONE),
};

/// The lock is there. Called once in a process, and again in a forked child, while one thread runs.
fn begin() {
    if PLACE.state.load(Ordering::Relaxed) != state::NONE {
        return;
    }
    tracing::begin();
    let recorder = tracing::recorder();
    let mut found = state::WATCHED;
    if let Some(spec) = config::get().policy {
        found = state::STEERED;
        // SAFETY: nobody else comes here before `state` says so.
        unsafe {
            let waiting = &mut *PLACE.waiting.get();
            let room = renewed((*waiting).cast(), MAX_THREADS * size_of::<Waiting>());
            *waiting = room.map_or(core::ptr::null_mut(), <*mut u8>::cast);
            let Some((slots, known)) = (*PLACE.records.get()).renew() else { return };
            if waiting.is_null() {
                return;
            }
            // All-zero bytes are values of `Waiting`; the mapping stays.
            let waiting = core::slice::from_raw_parts_mut(*waiting, MAX_THREADS);
            let driver = Driver { cores: sys::cores(), counts_instructions: false };
            let policy = spec.build(driver, slots);
            let notes = Notes::new(recorder, NUMBER, Here);
            let mut steer = Steer::new(policy, known, waiting, sys::cores(), notes);
            steer.set_interval(Linux.now(), SLICE);
            (*PLACE.steer.get()).write(steer);
        }
    }
    if let Some(recorder) = recorder {
        recorder.header().locks.fetch_add(1, Ordering::Relaxed);
        recorder.write(Linux.now().0, Kind::LockStart, 0, NUMBER, 0);
        if found == state::WATCHED {
            recorder.interval(Linux.now().0, 0, NUMBER, SLICE.0);
        }
    }
    peers::begin();
    PLACE.state.store(found, Ordering::Release);
}

/// What there is now cannot be served: the rest is Ruby's own.
fn give_up() {
    let was = PLACE.state.swap(state::OVER, Ordering::AcqRel);
    if let Some(recorder) = tracing::recorder().filter(|_| was != state::OVER) {
        recorder.write(Linux.now().0, Kind::LockEnd, 0, NUMBER, 0);
    }
}

/// Does something with the policy, if there is one.
fn steered<R>(act: impl FnOnce(&mut Steering, Nanos) -> R) -> Option<R> {
    if !is_steered() {
        return None;
    }
    let guard = PLACE.guard.with(&Linux);
    // SAFETY: no hook of ours calls another with the guard held (`with_me` keeps those of signal
    // handlers out); `steer` was written before the state said so.
    unsafe {
        guard.lock();
        let result = act((*PLACE.steer.get()).assume_init_mut(), Linux.now());
        guard.unlock();
        Some(result)
    }
}

fn watched() -> Option<deconvoy_trace::record::Recorder> {
    let is_watched = PLACE.state.load(Ordering::Acquire) == state::WATCHED;
    if is_watched { tracing::recorder() } else { None }
}

/// What the thread that keeps time is to do now.
#[derive(Clone, Copy)]
struct Wish {
    /// The holder is to be asked.
    asks: bool,
    /// When to look again, at the latest.
    timer: Nanos,
}

impl Wish {
    const NONE: Wish = Wish { asks: false, timer: Nanos::MAX };
}

/// What the policy wishes, with timers that have run out by now.
fn wish(steer: &mut Steering, now: Nanos) -> Wish {
    steer.look(now);
    Wish { asks: steer.asks(), timer: steer.next_timer().unwrap_or(Nanos::MAX) }
}

/// The thread wants the lock; `yields`: it is the one that gave it up last, to have it back later; `by`:
/// who has woken it.
fn arrives(me: Me, yields: bool, by: Option<WaiterId>) -> Wish {
    enter_in_trace(me);
    if let Some(recorder) = watched() {
        recorder.arrive(Linux.now().0, me.trace(), NUMBER);
    }
    let wish = steered(|steer, now| {
        if let Some(by) = by {
            steer.woken(now, me.seat(), by);
        }
        if yields {
            steer.passes(now, me.seat());
        } else {
            steer.arrives(now, me.seat());
        }
        wish(steer, now)
    });
    wish.unwrap_or(Wish::NONE)
}

/// The thread has taken the lock.
fn acquired(me: Me) -> Wish {
    me.slot.wants.store(0, Ordering::Relaxed);
    me.slot.tries.store(0, Ordering::Relaxed);
    me.slot.holds.store(1, Ordering::Relaxed);
    enter_in_trace(me);
    names::acquired(me);
    let (maker, by) = (me.slot.take_maker(), peers::woke(me));
    if let Some(recorder) = watched() {
        recorder.acquire(Linux.now().0, me.trace(), NUMBER, Linux.core());
    }
    let wish = steered(|steer, now| {
        if let Some(maker) = maker {
            steer.made(now, me.seat(), maker);
        }
        if let Some(by) = by {
            steer.woken(now, me.seat(), by);
        }
        steer.acquired(now, me.seat(), Linux.core());
        wish(steer, now)
    });
    wish.unwrap_or(Wish::NONE)
}

/// Whatever the program does with the lock, it does where it is allowed to.
fn set_free(me: Me) {
    PARKERS.get(me.who.0 as usize).inspect(|parker| parker.set_free(&Linux));
}

/// The thread has given the lock up.
fn released(me: Me) {
    if me.slot.holds.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    if let Some(recorder) = watched() {
        recorder.release(Linux.now().0, me.trace(), NUMBER, None);
    }
    steered(|steer, now| steer.released(now, me.seat(), Linux.core()));
}

/// A waiter is about to be woken, to take the lock; `is_its_own`: which no other can take. It runs with
/// it not before the calling thread has let go of the lock's mutex.
fn wakes(next: Me, is_its_own: bool) {
    let keep = steered(|steer, _| {
        if is_its_own {
            steer.handed(next.seat());
        }
        steer.keep_of(next.who)
    });
    let keep = keep.unwrap_or_default();
    if keep != Keep::Anywhere {
        keep_other(next, keep);
    }
}

/// Where one that is about to be woken to look at the holder is to run; `tries`: how often it was
/// before, and has not looked.
fn place_to_look(tries: u32) -> Keep {
    let place = |steer: &mut Steering, _| {
        see_holder(steer);
        steer.keep_of_asker(Linux.core(), tries)
    };
    steered(place).unwrap_or_default()
}

/// The policy's driver learns where the holder runs.
fn see_holder(steer: &mut Steering) {
    let word =
        steer.holder().and_then(other).map(|holder| holder.slot.core.load(Ordering::Relaxed));
    // SAFETY: a holder has not ended: that is told under the guard, which the caller has.
    if let Some(core) = word.and_then(|word| unsafe { rseq::core_at(word) }) {
        steer.runs_on(core);
    }
}

/// A thread that does not compute looks so soon whether the holder was asked indeed; then after twice
/// as long, ….
const PROD: Nanos = Nanos::from_micros(200);
const PROD_DOUBLES: u32 = 6;

/// The calling thread is about to wait behind a holder that is asked for it: when it is to look again
/// whether that was heard, and how often it has. The one that asks the holder may stand in a run queue.
fn looks_again(me: Me) -> Option<(Nanos, u32)> {
    if steered(|steer, _| steer.asks_for(me.who)) != Some(true) {
        return None;
    }
    let tries = me.slot.tries.fetch_add(1, Ordering::Relaxed);
    Some((Linux.now().after(Nanos(PROD.0 << tries.min(PROD_DOUBLES))), tries))
}

fn keep_other(thread: Me, keep: Keep) {
    if let Some(parker) = PARKERS.get(thread.who.0 as usize) {
        parker.keep(&OfThread(thread.slot.native_id.load(Ordering::Relaxed)), keep);
    }
}

/// Whether there is a lock that is steered.
pub fn is_steered() -> bool {
    PLACE.state.load(Ordering::Acquire) == state::STEERED
}

/// Whether this is a Ruby whose mutex was not found yet.
pub fn may_be_found() -> bool {
    MUTEX.load(Ordering::Relaxed) == 0 && ticks::is_begun()
}

/// Before a wait on a condition variable, with the lock's mutex. Whether it is a waiter's.
pub fn waits(cond: usize) -> bool {
    if kin() == Kin::Ticks {
        ticks::waits_on(cond);
        return false;
    }
    queue::waits(cond)
}

/// The wait on a condition variable, with the lock's mutex.
pub fn waits_with(cond: usize) -> Target {
    let is_in_line = waits(cond);
    if !is_steered() {
        return real::COND_WAIT.get();
    }
    match (kin(), is_in_line) {
        (Kin::Ticks, _) => ticks::wait as Target,
        (_, true) => line::wait as Target,
        (_, false) => line::wait_for_switch as Target,
    }
}

/// Whether the calling thread holds the lock's mutex.
fn is_inside(me: Me) -> bool {
    let mutex = MUTEX.load(Ordering::Relaxed);
    // SAFETY: Ruby has made this mutex, and never destroys it.
    mutex != 0
        && unsafe { real::Mutex(mutex as *mut c_void).owner() }
            == me.slot.native_id.load(Ordering::Relaxed)
}

/// Before the lock's mutex is let go of. Whether the thread is to yield once more.
pub fn unlocks() -> bool {
    if kin() == Kin::Ticks {
        return yields::unlocks();
    }
    queue::unlocks();
    false
}

/// The calling thread ends.
pub fn thread_ended(me: Me) {
    released(me);
    steered(|steer, now| steer.left(now, me.seat()));
}

/// In a forked child, where Ruby makes its lock anew.
pub fn forked() {
    let was = PLACE.state.swap(state::NONE, Ordering::Relaxed);
    // SAFETY: there is one thread, which is inside `fork`, and none that could hold the guard.
    unsafe { PLACE.guard.forget() };
    if was == state::OVER {
        PLACE.state.store(was, Ordering::Relaxed);
    }
    queue::forked();
    keeper::forked();
    if was == state::STEERED || was == state::WATCHED {
        begin();
        with_me(|me| {
            set_free(me);
            acquired(me)
        });
    }
}
