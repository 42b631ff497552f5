//! Ruby's lock (GVL), steered: its own scheduler stays in charge, and is told when a slice is over.
//!
//! Which thread uses the lock is seen from outside: in 2.6 to 3.2 at the calls on its mutex and
//! condition variables (`queue`), from 3.3 on by the hook that Ruby has for this (`ticks`). A policy
//! (`deconvoy_gil::Steer`) says whether the holder is to be asked. Ruby ends a slice when the thread
//! that keeps its time says so, after a wait that has run out: so the wait runs out then. Nothing of
//! Ruby's is written.
//!
//! Source: Ruby's `thread_pthread.c`, 2.7, 3.1 and 3.3.

mod hooks;
pub mod queue;
pub mod ticks;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use deconvoy_gil::{Guard, Mutex, Steer, System, Waiting};
use deconvoy_policy::{Driver, MAX_THREADS, Nanos};
use deconvoy_trace::format::Kind;
use deconvoy_trace::notes::Notes;

use crate::host::{enter_in_trace, with_me};
use crate::records::Records;
use crate::sys::{Linux, map_anonymous};
use crate::threads::Me;
use crate::tracing::{self, Here};
use crate::{config, environment, loader, names};

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

/// Which Ruby this process is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kin {
    /// None, or one that nobody knows.
    None,
    /// Waiters wait on condition variables of their own, one of them with a time limit.
    Queue,
    /// A thread keeps time for all.
    Ticks,
}

/// Looked for anew as long as there is neither a Ruby nor a Python: it may be loaded later.
pub fn kin() -> Kin {
    const UNKNOWN: u32 = 0;
    const QUEUE: u32 = 1;
    const TICKS: u32 = 2;
    const NEITHER: u32 = 3;
    static FOUND: AtomicU32 = AtomicU32::new(UNKNOWN);
    let mut found = FOUND.load(Ordering::Relaxed);
    if found == UNKNOWN {
        found = match version() {
            Some([2, 6..=7, _] | [3, 0..=2, _]) => QUEUE,
            Some([3, minor, _]) if minor >= 3 => TICKS,
            Some([4, _, _]) => TICKS,
            Some(_) => NEITHER,
            None if loader::symbol(c"Py_GetVersion").is_null() => UNKNOWN,
            None => NEITHER,
        };
        FOUND.store(found, Ordering::Relaxed);
    }
    match found {
        QUEUE => Kin::Queue,
        TICKS => Kin::Ticks,
        _ => Kin::None,
    }
}

/// `ruby_api_version`: three numbers.
fn version() -> Option<[c_int; 3]> {
    let at = loader::symbol(c"ruby_api_version");
    let known = !at.is_null() && !loader::symbol(c"rb_thread_call_without_gvl").is_null();
    // SAFETY: Ruby's API has it as an array of three `int` in every version.
    known.then(|| unsafe { *at.cast::<[c_int; 3]>() })
}

/// As `ruby -v` says, for the trace.
pub fn description() -> Option<&'static CStr> {
    let at = loader::symbol(c"ruby_description");
    // SAFETY: Ruby's API has it as a zero-terminated text, which is constant.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at.cast()) })
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
    if !config::get().exec_children {
        // SAFETY: the interpreter is starting, and has neither threads of the program's nor read
        // its environment.
        unsafe { environment::leave() };
    }
    tracing::begin();
    let recorder = tracing::recorder();
    let mut found = state::WATCHED;
    if let Some(spec) = config::get().policy {
        found = state::STEERED;
        // SAFETY: nobody else comes here before `state` says so.
        unsafe {
            let waiting = &mut *PLACE.waiting.get();
            if waiting.is_null() {
                let room = map_anonymous(MAX_THREADS * size_of::<Waiting>());
                *waiting = room.map_or(core::ptr::null_mut(), <*mut u8>::cast);
            } else {
                core::ptr::write_bytes(*waiting, 0, MAX_THREADS);
            }
            let Some((slots, known)) = (*PLACE.records.get()).renew() else { return };
            if waiting.is_null() {
                return;
            }
            // All-zero bytes are values of `Waiting`; the mapping stays.
            let waiting = core::slice::from_raw_parts_mut(*waiting, MAX_THREADS);
            // No waiter stays awake for the lock, as if there were one core.
            let driver = Driver { cores: 1, counts_instructions: false };
            let policy = spec.build(driver, slots);
            let mut steer = Steer::new(policy, known, waiting, Notes::new(recorder, NUMBER, Here));
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
    PLACE.state.store(found, Ordering::Release);
}

/// What there is now cannot be served: the rest is Ruby's own.
fn give_up() {
    PLACE.state.store(state::OVER, Ordering::Release);
}

/// Does something with the policy, if there is one.
fn steered<R>(act: impl FnOnce(&mut Steering, Nanos) -> R) -> Option<R> {
    if PLACE.state.load(Ordering::Acquire) != state::STEERED {
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

/// The thread wants the lock.
fn arrives(me: Me) -> Wish {
    enter_in_trace(me);
    if let Some(recorder) = watched() {
        recorder.arrive(Linux.now().0, me.trace(), NUMBER);
    }
    let wish = steered(|steer, now| {
        steer.arrives(now, me.seat());
        wish(steer, now)
    });
    wish.unwrap_or(Wish::NONE)
}

/// The thread has taken the lock.
fn acquired(me: Me) -> Wish {
    me.slot.wants.store(0, Ordering::Relaxed);
    me.slot.holds.store(1, Ordering::Relaxed);
    enter_in_trace(me);
    names::acquired(me);
    let maker = me.slot.take_maker();
    if let Some(recorder) = watched() {
        recorder.acquire(Linux.now().0, me.trace(), NUMBER, Linux.core());
    }
    let wish = steered(|steer, now| {
        if let Some(maker) = maker {
            steer.made(now, me.seat(), maker);
        }
        steer.acquired(now, me.seat());
        wish(steer, now)
    });
    wish.unwrap_or(Wish::NONE)
}

/// The thread has given the lock up.
fn released(me: Me) {
    if me.slot.holds.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    if let Some(recorder) = watched() {
        recorder.release(Linux.now().0, me.trace(), NUMBER, None);
    }
    steered(|steer, now| steer.released(now, me.seat()));
}

/// Whether this is a Ruby whose mutex was not found yet.
pub fn may_be_found() -> bool {
    MUTEX.load(Ordering::Relaxed) == 0 && ticks::is_begun()
}

/// Before a wait on a condition variable, with the lock's mutex. Whether it is a waiter's.
pub fn waits(cond: usize) -> bool {
    kin() == Kin::Queue && queue::waits(cond)
}

/// Before the lock's mutex is let go of. Whether the thread is to yield once more.
pub fn unlocks() -> bool {
    if kin() == Kin::Ticks {
        return ticks::unlocks();
    }
    queue::unlocks();
    false
}

/// The calling thread ends.
pub fn thread_ended(me: Me) {
    if me.slot.holds.load(Ordering::Relaxed) > 0 {
        released(me);
    }
    steered(|steer, now| steer.left(now, me.seat()));
}

/// In a forked child, where Ruby makes its lock anew.
pub fn forked() {
    let was = PLACE.state.swap(state::NONE, Ordering::Relaxed);
    // SAFETY: there is one thread, which is inside `fork`, and none that could hold the guard.
    unsafe { PLACE.guard.forget() };
    if was == state::OVER {
        give_up();
    }
    queue::forked();
    ticks::forked();
    if was == state::STEERED || was == state::WATCHED {
        begin();
        with_me(acquired);
    }
}
