//! CPython's lock, as seen from outside: which condition variables belong to it, and what a call
//! on one of them says.
//!
//! | call | by | says |
//! |---|---|---|
//! | `pthread_cond_timedwait(cond)` | a thread that finds the lock held | it waits |
//! | `… = ETIMEDOUT`, no switch meanwhile | the same | it sets the holder's drop request |
//! | `pthread_cond_signal(switch_cond)` | a thread that has taken the lock | acquired |
//! | `pthread_cond_signal(cond)` | the holder | released |
//! | `pthread_cond_wait(switch_cond)` | one that released on request | waits for another to take it |
//!
//! All but the last come with the lock's own mutex held, which so guards the gate; the second to
//! last of `switch_cond` comes with `switch_mutex` held, and so does the signal that ends it.
//! Source: CPython's `Python/ceval_gil.c`, 3.8 to 3.15.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use deconvoy_gil::{GateCell, Guard, Latch, Outcome, System, wait, wait_for_switch};
use deconvoy_policy::{MAX_THREADS, Nanos, Slot};
use deconvoy_trace::format::{Kind, MAX_LOCKS};

use crate::sys::{Linux, Timespec, map_anonymous, peek};
use crate::threads::{Me, PARKERS, me, other};
use crate::tracing::{self, Notes};
use crate::{config, environment, names, real};

/// `struct _gil_runtime_state`, in bytes from `cond`: the same from 3.8 to 3.15 in every build.
mod layout {
    pub const INTERVAL: usize = 32; // before
    pub const LOCKED: usize = 16; // before
    pub const SWITCHES: usize = 8; // before
    pub const MUTEX: usize = COND_BYTES;
    pub const SWITCH_COND: usize = MUTEX + MUTEX_BYTES;
    pub const SWITCH_MUTEX: usize = SWITCH_COND + COND_BYTES;

    const COND_BYTES: usize = 48;
    #[cfg(target_arch = "x86_64")]
    const MUTEX_BYTES: usize = 40;
    #[cfg(target_arch = "aarch64")]
    const MUTEX_BYTES: usize = 48;
}

/// What becomes of a lock's calls. Goes up only, but for a lock that is made anew.
///
/// | mode | calls |
/// |---|---|
/// | `FREE` | no lock here |
/// | `FOUND` | noted, and passed on; nobody has waited yet, so it can still turn out to be none |
/// | `SERVED` | answered by the gate |
/// | `WATCHED` | noted, and passed on |
mod mode {
    pub const FREE: u32 = 0;
    pub const FOUND: u32 = 1;
    pub const SERVED: u32 = 2;
    pub const WATCHED: u32 = 3;
}

/// What the lock's own mutex guards.
struct Inside {
    cell: MaybeUninit<GateCell<'static, Notes, Locked>>,
    /// The only thread seen so far, as number + 1; 0: none; `SEVERAL`. While there is only one
    /// and no trace is written, nothing is done at all.
    sole: u32,
    /// Watching: when the present holder was first asked.
    asked_ns: Option<u64>,
}

const SEVERAL: u32 = u32::MAX;

pub struct Lock {
    /// The address of `cond`; 0: free.
    cond: AtomicUsize,
    mode: AtomicU32,
    inside: UnsafeCell<Inside>,
}

// SAFETY: `inside` is reached with the lock's own mutex held (see the table above), or, in
// `Lock::make`, before any thread but the one that makes the lock knows it.
unsafe impl Sync for Lock {}

impl Lock {
    const fn new() -> Lock {
        let inside = Inside { cell: MaybeUninit::uninit(), sole: 0, asked_ns: None };
        Lock {
            cond: AtomicUsize::new(0),
            mode: AtomicU32::new(mode::FREE),
            inside: UnsafeCell::new(inside),
        }
    }
}

static LOCKS: [Lock; MAX_LOCKS] = [const { Lock::new() }; MAX_LOCKS];

/// Places in `LOCKS` below this have been used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The condition variables that were initialised last: CPython does those of a lock one after the
/// other.
static RECENT: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static RECENT_NEXT: AtomicUsize = AtomicUsize::new(0);

/// Which of a lock's two condition variables an address is.
#[derive(Clone, Copy)]
pub enum Part {
    Cond(&'static Lock),
    SwitchCond(&'static Lock),
}

/// The lock that a condition variable belongs to.
pub fn find(address: usize) -> Option<Part> {
    let used = USED.load(Ordering::Acquire);
    LOCKS.iter().take(used).find_map(|lock| {
        let cond = lock.cond.load(Ordering::Relaxed);
        if cond == address && cond != 0 {
            Some(Part::Cond(lock))
        } else if cond.wrapping_add(layout::SWITCH_COND) == address && cond != 0 {
            Some(Part::SwitchCond(lock))
        } else {
            None
        }
    })
}

/// Whether this process is a CPython that we know: 3.8 or later.
fn is_known_python() -> bool {
    static ANSWER: AtomicU32 = AtomicU32::new(0);
    if ANSWER.load(Ordering::Relaxed) == 0 {
        let known = !real::symbol(c"_PyRuntime").is_null()
            && !real::symbol(c"PyConfig_InitPythonConfig").is_null()
            && real::complete();
        if !known {
            // Asked again next time: the interpreter may be loaded later.
            return false;
        }
        ANSWER.store(1, Ordering::Relaxed);
    }
    true
}

/// Notes that a condition variable is about to be initialised, and finds a lock when it is the
/// second of one.
pub fn cond_initialised(address: usize) {
    forget(address);
    let first = address.wrapping_sub(layout::SWITCH_COND);
    let is_second = RECENT.iter().any(|recent| recent.load(Ordering::Relaxed) == first);
    if is_second && is_known_python() && looks_like_one(first) {
        Lock::make(first);
    }
    let next = RECENT_NEXT.fetch_add(1, Ordering::Relaxed) % RECENT.len();
    if let Some(place) = RECENT.get(next) {
        place.store(address, Ordering::Relaxed);
    }
}

/// A condition variable goes away.
pub fn cond_destroyed(address: usize) {
    for recent in &RECENT {
        // An address that is used again must not pair with what is gone.
        let _ = recent.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    forget(address);
}

fn forget(address: usize) {
    if let Some(Part::Cond(lock) | Part::SwitchCond(lock)) = find(address) {
        lock.end();
    }
}

const LONGEST_INTERVAL_US: u64 = 10_000_000_000;

/// Whether the memory around a condition variable could be a lock of CPython's.
fn looks_like_one(cond: usize) -> bool {
    // interval, last holder, locked, switches
    let Some([interval, _, _, switches]) = peek::<4>(cond.wrapping_sub(layout::INTERVAL)) else {
        return false;
    };
    // 0 is what CPython keeps for an interval below 1 us, and reads as 1.
    interval <= LONGEST_INTERVAL_US && switches < 1 << 48
}

/// Finds a lock at its first contended wait, if its making was missed. The deadline gives it
/// away: one switch interval from now.
pub fn discover(cond: usize, mutex: usize, deadline: &Timespec) -> Option<&'static Lock> {
    if cond.wrapping_add(layout::MUTEX) != mutex || !is_known_python() || !looks_like_one(cond) {
        return None;
    }
    let lock = Lock::make(cond)?;
    lock.verify(mutex, deadline).then_some(lock)
}

impl Lock {
    /// Enters a lock that was just made; nobody uses it yet.
    fn make(cond: usize) -> Option<&'static Lock> {
        let number = LOCKS.iter().position(|lock| {
            lock.cond.compare_exchange(0, cond, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        let lock = LOCKS.get(number)?;
        if number == 0 && !config::get().exec_children {
            // SAFETY: the first lock is made as the interpreter starts, before it reads its
            // environment or runs the program.
            unsafe { environment::leave() };
        }
        tracing::begin();
        let recorder = tracing::recorder();
        let notes = Notes { recorder, lock: number.min(255) as u8, asked_ns: None };
        // SAFETY: nobody else knows the lock yet.
        let inside = unsafe { &mut *lock.inside.get() };
        inside.sole = 0;
        inside.asked_ns = None;
        let latch = Locked(cond.wrapping_sub(layout::LOCKED) as *const AtomicU32);
        match config::get().policy {
            Some(spec) => {
                let cores = config::get().cores;
                let Some((slots, generations)) = records() else {
                    lock.cond.store(0, Ordering::Release);
                    return None;
                };
                let policy = spec.build(cores, slots);
                inside.cell.write(GateCell::new(
                    policy,
                    &PARKERS,
                    generations,
                    cores,
                    notes,
                    latch,
                ));
            }
            None => {
                // The gate is not used; the notes are kept in it all the same.
                let policy = deconvoy_policy::Spec::Timeout(Default::default()).build(1, &mut []);
                inside.cell.write(GateCell::new(policy, &PARKERS, &mut [], 1, notes, latch));
            }
        }
        if let Some(recorder) = recorder {
            recorder.header().locks.fetch_add(1, Ordering::Relaxed);
            recorder.write(Linux.now().0, Kind::LockStart, 0, number.min(255) as u8, 0);
        }
        lock.mode.store(mode::FOUND, Ordering::Release);
        USED.fetch_max(number + 1, Ordering::Release);
        Some(lock)
    }

    /// The lock is destroyed, or its memory is something else now.
    fn end(&'static self) {
        if self.mode.swap(mode::FREE, Ordering::AcqRel) == mode::SERVED {
            // SAFETY: the owner destroys the lock: nobody takes or gives it up any more.
            unsafe { self.cell().gate() }.release_all(&Linux);
        }
        if let Some(recorder) = tracing::recorder() {
            recorder.write(Linux.now().0, Kind::LockEnd, 0, self.number(), 0);
        }
        self.cond.store(0, Ordering::Release);
    }

    fn number(&self) -> u8 {
        let at = &raw const *self as usize - LOCKS.as_ptr() as usize;
        (at / size_of::<Lock>()).min(255) as u8
    }

    fn cell(&'static self) -> &'static GateCell<'static, Notes, Locked> {
        // SAFETY: written in `make`, before the lock could be found.
        unsafe { (*self.inside.get()).cell.assume_init_ref() }
    }

    /// # Safety
    /// The lock's own mutex is held.
    #[allow(clippy::mut_from_ref, reason = "the mutex makes it exclusive")]
    unsafe fn inside(&'static self) -> &'static mut Inside {
        // SAFETY: as the caller says.
        unsafe { &mut *self.inside.get() }
    }

    fn read(&self, before: usize) -> u64 {
        let at = self.cond.load(Ordering::Relaxed).wrapping_sub(before);
        // SAFETY: a field of the lock's struct, which lives as long as calls on it are made;
        // aligned as CPython's compiler aligned it.
        unsafe { (at as *const u64).read_volatile() }
    }

    /// The lock's own mutex.
    fn guard(&self) -> real::Mutex {
        real::Mutex(self.cond.load(Ordering::Relaxed).wrapping_add(layout::MUTEX) as *mut c_void)
    }

    /// The mutex of the forced switch.
    fn switch_guard(&self) -> real::Mutex {
        let cond = self.cond.load(Ordering::Relaxed);
        real::Mutex(cond.wrapping_add(layout::SWITCH_MUTEX) as *mut c_void)
    }

    fn interval(&self) -> Nanos {
        Nanos::from_micros(self.read(layout::INTERVAL).clamp(1, LONGEST_INTERVAL_US))
    }

    fn switches(&self) -> u64 {
        self.read(layout::SWITCHES)
    }

    fn is_locked(&self) -> bool {
        self.read(layout::LOCKED) as u32 == 1
    }

    /// At the first wait: is it the lock that it looks like? If not, it is never touched again.
    fn verify(&'static self, mutex: usize, deadline: &Timespec) -> bool {
        const LATE: Nanos = Nanos::from_millis(200);
        let interval = self.interval();
        let now = Linux.now();
        let end = deadline.nanos();
        let in_time = end <= now.after(interval) && end.after(LATE) >= now.after(interval);
        let cond = self.cond.load(Ordering::Relaxed);
        if cond.wrapping_add(layout::MUTEX) != mutex || !self.is_locked() || !in_time {
            self.mode.store(mode::FREE, Ordering::Release);
            self.cond.store(0, Ordering::Release);
            return false;
        }
        let served = config::get().policy.is_some();
        if served && config::get().cores > 1 {
            // SAFETY: what called is a wait on the lock's own mutex, which is held; the other one
            // lies behind it in CPython's struct, and was initialised before.
            unsafe {
                self.guard().spin_first(true);
                self.switch_guard().spin_first(false);
            }
        }
        self.mode.store(if served { mode::SERVED } else { mode::WATCHED }, Ordering::Release);
        true
    }

    /// What a timed wait on this lock's `cond` must be answered with.
    pub fn waits(&'static self, mutex: usize, deadline: &Timespec) -> Answer {
        match self.mode.load(Ordering::Acquire) {
            mode::SERVED => Answer::Serve,
            mode::WATCHED => Answer::Watch,
            mode::FOUND if self.verify(mutex, deadline) => self.waits(mutex, deadline),
            _ => Answer::PassOn,
        }
    }
}

/// CPython's `locked`, which says whether somebody has the lock. It is closed only between a
/// release and the moment when the waiter that it is kept for takes it. Nothing but `take_gil`
/// acts on it then: no thread holds the lock, and a drop request, which would reach for the last
/// holder, is not made (`Outcome::Ask` says that there is a holder).
struct Locked(*const AtomicU32);

// SAFETY: an atomic at an address that stays valid while calls on the lock are made.
unsafe impl Send for Locked {}

impl Locked {
    fn set(&self, value: u32) {
        // SAFETY: the field of a verified lock, an aligned `int` that CPython itself reads and
        // writes as an atomic; the mutex that guards it is held.
        unsafe { &*self.0 }.store(value, Ordering::Relaxed);
    }
}

impl Latch for Locked {
    fn close(&self) {
        self.set(1);
    }

    fn open(&self) {
        self.set(0);
    }
}

/// What to do with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    PassOn,
    Serve,
    /// Pass on a wait, but note its end too.
    Watch,
}

/// Memory for one lock's policy; fresh, so that records of before a fork are gone.
fn records() -> Option<(&'static mut [Slot], &'static mut [u32])> {
    let slots = map_anonymous(MAX_THREADS * size_of::<Slot>())?.cast::<Slot>();
    let generations = map_anonymous(MAX_THREADS * size_of::<u32>())?.cast::<u32>();
    // SAFETY: fresh, page-aligned, zeroed mappings of those sizes that stay; all-zero bytes are
    // valid values of both types.
    unsafe {
        Some((
            core::slice::from_raw_parts_mut(slots, MAX_THREADS),
            core::slice::from_raw_parts_mut(generations, MAX_THREADS),
        ))
    }
}

/// Runs `hook` for the calling thread, unless it interrupts another hook of the same thread: then
/// the call came from a signal handler, and is none of ours.
fn with_me(hook: impl FnOnce(Me)) {
    let Some(me) = me() else { return };
    if me.slot.busy.swap(1, Ordering::Relaxed) == 0 {
        hook(me);
        me.slot.busy.store(0, Ordering::Relaxed);
    }
}

/// The calling thread, in the trace too: a trace may have begun after the thread was first seen.
fn enter_in_trace(me: Me) {
    if me.trace() == 0 && tracing::recorder().is_some() {
        tracing::start_thread(me);
        names::begin(me);
    }
}

/// The holder gives the lock up: a signal on `cond`. Called with the mutex held.
pub fn released(lock: &'static Lock) -> Answer {
    let mode = lock.mode.load(Ordering::Relaxed);
    with_me(|me| {
        me.slot.holds.store(0, Ordering::Relaxed);
        // SAFETY: CPython signals `cond` with the mutex held; the reference ends with this call.
        let inside = unsafe { lock.inside() };
        if inside.sole == me.who.0 + 1 {
            return;
        }
        let now = Linux.now();
        if config::get().policy.is_some() {
            // SAFETY: as above.
            unsafe { lock.cell().released(&Linux, now, me.seat()) };
        } else if let Some(recorder) = tracing::recorder() {
            recorder.release(now.0, me.trace(), lock.number(), inside.asked_ns.take());
        }
    });
    if mode == mode::SERVED { Answer::Serve } else { Answer::PassOn }
}

/// A thread has taken the lock: a signal on `switch_cond`. Called with both mutexes held.
pub fn acquired(lock: &'static Lock) -> Answer {
    let mode = lock.mode.load(Ordering::Relaxed);
    with_me(|me| {
        me.slot.pending.store(0, Ordering::Relaxed);
        me.slot.holds.store(1, Ordering::Relaxed);
        enter_in_trace(me);
        names::acquired(me);
        // SAFETY: CPython signals `switch_cond` in `take_gil` with the mutex held; the reference
        // ends with this call.
        let inside = unsafe { lock.inside() };
        let traced = tracing::recorder().is_some();
        let mine = me.who.0 + 1;
        if !traced && (inside.sole == 0 || inside.sole == mine) {
            inside.sole = mine;
            return;
        }
        inside.sole = SEVERAL;
        let now = Linux.now();
        if config::get().policy.is_some() {
            // SAFETY: as above.
            unsafe { lock.cell().gate() }.acquired(&Linux, now, me.seat());
        } else if let Some(recorder) = tracing::recorder() {
            inside.asked_ns = None;
            recorder.acquire(now.0, me.trace(), lock.number());
        }
    });
    if mode == mode::SERVED {
        lock.cell().announce_taken(&Linux);
        return Answer::Serve;
    }
    Answer::PassOn
}

/// A thread that released on request waits for another to take the lock. Called with
/// `switch_mutex` held.
pub fn forced(lock: &'static Lock) -> Answer {
    with_me(|me| {
        if let Some(recorder) = tracing::recorder() {
            recorder.forced(Linux.now().0, me.trace(), lock.number());
        }
    });
    if lock.mode.load(Ordering::Relaxed) == mode::SERVED { Answer::Serve } else { Answer::PassOn }
}

/// `pthread_cond_wait(switch_cond, switch_mutex)` of a served lock.
pub unsafe extern "C" fn serve_switch(cond: *mut c_void, mutex: *mut c_void) -> c_int {
    if let Some(Part::SwitchCond(lock)) = find(cond as usize) {
        let who = me().map(|me| me.who);
        // SAFETY: a condition variable is waited on with its mutex held.
        unsafe { wait_for_switch(lock.cell(), &real::Mutex(mutex), &Linux, who) };
    }
    0
}

const ETIMEDOUT: c_int = 110;

/// `pthread_cond_timedwait(cond, mutex, deadline)` of a served lock. Not a point of cancellation:
/// where CPython's wait is one, a cancelled thread leaves the lock's mutex locked for good.
pub unsafe extern "C" fn serve_wait(
    cond: *mut c_void,
    mutex: *mut c_void,
    deadline: *const Timespec,
) -> c_int {
    let Some(Part::Cond(lock)) = find(cond as usize) else { return 0 };
    let guard = real::Mutex(mutex);
    let Some(me) = me() else {
        // SAFETY: the deadline is the caller's argument; the guard is held.
        return unsafe { wait_as_stock(lock, &guard, (*deadline).nanos()) };
    };
    enter_in_trace(me);
    me.slot.busy.store(1, Ordering::Relaxed);
    // SAFETY: CPython waits on `cond` with the mutex held; the reference ends with this block.
    let inside = unsafe { lock.inside() };
    if inside.sole != SEVERAL {
        // The one thread so far holds the lock, and the policy does not know it yet.
        let holder = inside.sole.checked_sub(1).and_then(|n| other(deconvoy_policy::WaiterId(n)));
        inside.sole = SEVERAL;
        if let Some(holder) = holder {
            // SAFETY: as above.
            unsafe { lock.cell().gate() }.acquired(&Linux, Linux.now(), holder.seat());
        }
    }
    let interval = lock.interval();
    // SAFETY: the guard is held, and no reference into the gate is left.
    let outcome =
        unsafe { wait(lock.cell(), &guard, &Linux, me.seat(), interval, || lock.switches()) };
    me.slot.pending.store(u32::from(lock.number()) + 1, Ordering::Relaxed);
    me.slot.busy.store(0, Ordering::Relaxed);
    match outcome {
        Outcome::Retry => 0,
        Outcome::Ask => ETIMEDOUT,
    }
}

/// A thread without a number waits as CPython would, looking for itself: it asks when the
/// interval is over and nobody else had the lock meanwhile.
///
/// # Safety
/// The calling thread holds `guard`.
unsafe fn wait_as_stock(lock: &'static Lock, guard: &impl Guard, deadline: Nanos) -> c_int {
    const LOOK: Nanos = Nanos::from_micros(200);
    let switches = lock.switches();
    while lock.is_locked() {
        let now = Linux.now();
        if now >= deadline {
            // SAFETY: the guard is held.
            let asks = lock.switches() == switches && unsafe { lock.cell().gate() }.may_ask();
            return if asks { ETIMEDOUT } else { 0 };
        }
        // SAFETY: the guard is held, and taken again below.
        unsafe { guard.unlock() };
        let nobody = deconvoy_gil::AtomicU32::new(0);
        Linux.futex_wait(&nobody, 0, Some(now.after(LOOK).min(deadline)));
        // SAFETY: it was let go of above.
        unsafe { guard.lock() };
    }
    0
}

/// Before a wait that is watched.
pub fn watch_begins(lock: &'static Lock) {
    with_me(|me| {
        enter_in_trace(me);
        me.slot.switches.store(lock.switches(), Ordering::Relaxed);
        if let Some(recorder) = tracing::recorder() {
            let interval = lock.interval();
            let now = Linux.now();
            if recorder.header().interval_ns.load(Ordering::Relaxed) != interval.0 {
                recorder.interval(now.0, me.trace(), lock.number(), interval.0);
            }
            recorder.arrive(now.0, me.trace(), lock.number());
        }
    });
}

/// After it.
pub unsafe extern "C" fn watch_ends(cond: *mut c_void, result: c_int) {
    let Some(Part::Cond(lock)) = find(cond as usize) else { return };
    with_me(|me| {
        let asks = result == ETIMEDOUT
            && lock.is_locked()
            && lock.switches() == me.slot.switches.load(Ordering::Relaxed);
        if asks && let Some(recorder) = tracing::recorder() {
            let now = Linux.now();
            // SAFETY: a wait returns with the mutex held.
            let asked = unsafe { &mut lock.inside().asked_ns };
            *asked = asked.or(Some(now.0));
            recorder.ask(now.0, me.trace(), lock.number());
        }
    });
}

/// A thread ends. If its last wait came back and it took no lock since, a policy may still have
/// it in a queue.
pub fn thread_ended(me: Me) {
    let Some(number) = me.slot.pending.swap(0, Ordering::Relaxed).checked_sub(1) else { return };
    let Some(lock) = LOCKS.get(number as usize) else { return };
    if lock.mode.load(Ordering::Acquire) != mode::SERVED {
        return;
    }
    let guard = lock.guard();
    // SAFETY: a thread ends outside of the interpreter's own calls, so it does not hold the mutex;
    // the lock is in use, as a moment ago it was waited for.
    unsafe { guard.lock() };
    // SAFETY: the mutex is held.
    unsafe { lock.cell().gate() }.left(&Linux, Linux.now(), me.who);
    // SAFETY: as above.
    unsafe { guard.unlock() };
}

/// In a forked child: no lock is served until the interpreter has made it anew, as it does.
pub fn forked() {
    for lock in LOCKS.iter().take(USED.load(Ordering::Relaxed)) {
        lock.mode.store(mode::FREE, Ordering::Relaxed);
        lock.cond.store(0, Ordering::Relaxed);
    }
}
