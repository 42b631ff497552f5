//! CPython's lock, as seen from outside: what a call on one of its condition variables says.
//!
//! | call | by | says |
//! |---|---|---|
//! | `pthread_cond_timedwait(cond)` | a thread that finds the lock held | it waits |
//! | `… = ETIMEDOUT`, no switch meanwhile | the same | it sets the holder's drop request |
//! | `pthread_cond_signal(switch_cond)` | a thread that has taken the lock | acquired |
//! | `pthread_cond_signal(cond)` | the holder | released |
//! | `pthread_cond_wait(switch_cond)` | one that released on request | waits for another to take it |
//!
//! All but the last come with the lock's own mutex held, which so guards the gate; the last, and
//! the signal that ends it, come with `switch_mutex` held.
//!
//! Source: CPython's `Python/ceval_gil.c`, 3.8 to 3.15.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{Ordering, compiler_fence};

use deconvoy_gil::{Guard, Outcome, Own, System, Usage, wait, wait_for_switch};
use deconvoy_policy::Nanos;

use crate::locks::{Lock, Part, by_number, find, mode};
use crate::real::{self, ETIMEDOUT};
use crate::sys::{Linux, Timespec};
use crate::threads::{Me, PARKERS, me, other};
use crate::{config, names, peers, sys, tracing};

/// What to do with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    PassOn,
    Serve,
    /// Pass on a wait, but note its end too.
    Watch,
}

/// What a signal on one of a lock's condition variables must be answered with.
pub fn signalled(lock: &Lock) -> Answer {
    if lock.mode() == mode::SERVED { Answer::Serve } else { Answer::PassOn }
}

/// What a timed wait on a lock's `cond` must be answered with.
pub fn waits(lock: &'static Lock, mutex: usize, deadline: &Timespec) -> Answer {
    match lock.mode() {
        mode::SERVED => Answer::Serve,
        mode::WATCHED => Answer::Watch,
        // SAFETY: a condition variable is waited on with its mutex held.
        mode::FOUND if unsafe { lock.verify(mutex, deadline) } => waits(lock, mutex, deadline),
        _ => Answer::PassOn,
    }
}

/// Runs `hook` for the calling thread, unless it interrupts another hook of the same thread: then
/// the call came from a signal handler, and is none of ours.
pub fn with_me<R>(hook: impl FnOnce(Me) -> R) -> Option<R> {
    let me = me()?;
    // No read-modify-write: only handlers on this very thread come in between, and each leaves it as
    // it was.
    if me.slot.busy.load(Ordering::Relaxed) != 0 {
        return None;
    }
    me.slot.busy.store(1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let result = hook(me);
    compiler_fence(Ordering::SeqCst);
    me.slot.busy.store(0, Ordering::Relaxed);
    Some(result)
}

/// The calling thread, in the trace too: a trace may have begun after the thread was first seen.
pub fn enter_in_trace(me: Me) {
    if me.trace() == 0 && tracing::recorder().is_some() {
        tracing::start_thread(me);
        names::begin(me);
    }
}

/// The holder gives the lock up: a signal on `cond`. Called with the mutex held.
#[inline(never)] // What is done for a lock that one thread has to itself stays short.
pub fn released(lock: &'static Lock) -> Answer {
    with_me(|me| {
        me.slot.holds.store(0, Ordering::Relaxed);
        peers::released(me);
        // SAFETY: CPython signals `cond` with the mutex held; the reference ends here.
        if unsafe { lock.usage() }.is_own(me.seat()) {
            return;
        }
        let now = Linux.now();
        let recorder = tracing::recorder();
        if config::get().policy.is_some() {
            // SAFETY: as above.
            unsafe { lock.cell().released(&Linux, now, me.seat()) };
            // SAFETY: as above.
            let is_ripe = unsafe { lock.usage() }.is_ripe(me.who);
            if is_ripe && !lock.has_visitors() && recorder.is_none() {
                // SAFETY: as above.
                unsafe { lock.give(own(me, now)) };
            }
        } else if let Some(recorder) = recorder {
            // SAFETY: as above.
            let asked_ns = unsafe { lock.inside() }.asked_ns.take();
            recorder.release(now.0, me.trace(), lock.number(), asked_ns);
        }
    });
    signalled(lock)
}

/// How it is as a lock becomes the calling thread's own.
fn own(me: Me, now: Nanos) -> Own {
    let used = sys::used_by(me.slot.native_id.load(Ordering::Relaxed)).unwrap_or(Nanos::ZERO);
    Own { seat: me.seat(), since: now, used }
}

/// The thread whose own the lock was, if it is still there.
fn owner(own: &Own) -> Option<Me> {
    other(own.seat.who).filter(|thread| thread.seat().generation == own.seat.generation)
}

/// Whether the thread whose own the lock was spent that time computing.
fn computed(own: &Own, now: Nanos) -> bool {
    let used =
        owner(own).and_then(|thread| sys::used_by(thread.slot.native_id.load(Ordering::Relaxed)));
    used.is_some_and(|used| own.computed(now, used))
}

/// A thread has taken the lock: a signal on `switch_cond`. Called with both mutexes held.
#[inline(never)] // As above.
pub fn acquired(lock: &'static Lock) -> Answer {
    let is_own = with_me(|me| {
        me.slot.pending.store(0, Ordering::Relaxed);
        me.slot.lock.store(u32::from(lock.number()) + 1, Ordering::Relaxed);
        let hold = me.slot.hold.load(Ordering::Relaxed).wrapping_add(1);
        me.slot.hold.store(hold, Ordering::Relaxed);
        // Release: see `peers::Post::lasts`.
        me.slot.holds.store(1, Ordering::Release);
        enter_in_trace(me);
        names::acquired(me);
        // SAFETY: CPython signals `switch_cond` in `take_gil` with the mutex held; the reference
        // ends before the lock is given.
        let usage = unsafe { lock.usage() };
        let (seat, maker) = (me.seat(), me.slot.take_maker());
        let may_own = tracing::recorder().is_none();
        let by = peers::woke(me);
        if may_own && usage.is_own(seat) {
            return true;
        }
        let now = Linux.now();
        if config::get().policy.is_some() {
            if may_own && usage.is_fresh() {
                // SAFETY: as above.
                if unsafe { lock.give(own(me, now)) } {
                    me.slot.holds.store(0, Ordering::Relaxed);
                }
                return true;
            }
            // SAFETY: as above.
            let gate = unsafe { lock.cell().gate() };
            if let Usage::Own(own) = *usage {
                gate.returned(&Linux, now, &own, computed(&own, now), false);
            }
            usage.taken(me.who);
            if let Some(maker) = maker {
                gate.made(&Linux, now, seat, maker);
            }
            if let Some(by) = by {
                gate.woken(&Linux, now, seat, by);
            }
            gate.acquired(&Linux, now, seat);
        } else if let Some(recorder) = tracing::recorder() {
            // SAFETY: as above; the other reference is not used any more.
            unsafe { lock.inside() }.asked_ns = None;
            recorder.acquire(now.0, me.trace(), lock.number(), Linux.core());
        }
        false
    });
    let answer = signalled(lock);
    // While the lock is one thread's own nobody waits in a forced switch.
    if answer == Answer::Serve && is_own != Some(true) {
        lock.cell().announce_taken(&Linux);
    }
    answer
}

/// A thread that released on request waits for another to take the lock. Called with
/// `switch_mutex` held.
pub fn forced(lock: &'static Lock) -> Answer {
    with_me(|me| {
        if let Some(recorder) = tracing::recorder() {
            recorder.forced(Linux.now().0, me.trace(), lock.number());
        }
    });
    signalled(lock)
}

/// `pthread_cond_wait(switch_cond, switch_mutex)` of a served lock.
pub unsafe extern "C" fn serve_switch(cond: *mut c_void, mutex: *mut c_void) -> c_int {
    if let Some(Part::SwitchCond(lock)) = find(cond as usize) {
        let Some(_visit) = lock.visit() else { return 0 };
        let who = me().map(|me| me.who);
        // SAFETY: a condition variable is waited on with its mutex held.
        unsafe { wait_for_switch(lock.cell(), &real::Mutex(mutex), &Linux, who) };
    }
    0
}

/// `pthread_cond_timedwait(cond, mutex, deadline)` of a served lock. Not a point of cancellation:
/// where CPython's wait is one, a cancelled thread leaves the lock's mutex locked for good.
pub unsafe extern "C" fn serve_wait(
    cond: *mut c_void,
    mutex: *mut c_void,
    deadline: *const Timespec,
) -> c_int {
    let Some(Part::Cond(lock)) = find(cond as usize) else { return 0 };
    let Some(_visit) = lock.visit() else { return 0 };
    let guard = real::Mutex(mutex);
    // SAFETY: CPython waits on `cond` with the mutex held; the reference ends with this statement.
    if let Some(own) = unsafe { lock.usage() }.share() {
        // It holds the lock, and neither its slot nor the policy knows.
        if let Some(owner) = owner(&own) {
            owner.slot.holds.store(1, Ordering::Relaxed);
        }
        let now = Linux.now();
        // SAFETY: as above.
        unsafe { lock.cell().gate() }.returned(&Linux, now, &own, computed(&own, now), true);
    }
    let Some(me) = me() else {
        // SAFETY: the deadline is the caller's argument; the guard is held.
        return unsafe { wait_as_stock(lock, &guard, (*deadline).nanos()) };
    };
    enter_in_trace(me);
    me.slot.busy.store(1, Ordering::Relaxed);
    if let Some(by) = peers::woke(me) {
        // SAFETY: the guard is held; the reference ends with the call.
        unsafe { lock.cell().gate() }.woken(&Linux, Linux.now(), me.seat(), by);
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
            let asks = lock.switches() == switches && unsafe { lock.cell().gate() }.may_ask(now);
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
    // CPython ends daemon threads from inside their wait. What follows is the program's.
    if let Some(parker) = PARKERS.get(me.who.0 as usize) {
        parker.set_free(&Linux);
    }
    let Some(number) = me.slot.pending.swap(0, Ordering::Relaxed).checked_sub(1) else { return };
    let Some(lock) = by_number(number) else { return };
    let Some(_visit) = lock.visit() else { return };
    let guard = lock.guard();
    // SAFETY: a thread ends outside of the interpreter's own calls, so it does not hold the mutex;
    // the lock is not destroyed before the visit is over.
    unsafe { guard.lock() };
    // SAFETY: the mutex is held.
    unsafe { lock.cell().gate() }.left(&Linux, Linux.now(), me.who);
    // SAFETY: as above.
    unsafe { guard.unlock() };
}
