//! The thread that keeps time in Ruby from 3.3 on.
//!
//! As long as somebody waits, it waits 10 ms at a time for events, and when there were none it adds a
//! tick to the holder's slice, which is over after ten. So, when the policy asks, its wait ends at once,
//! with none, until the slice is over.

use core::ffi::{c_int, c_void};
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use deconvoy_gil::{Keep, Parker, System};
use deconvoy_policy::Nanos;

use super::{Wish, place_to_look, steered, ticks, wish};
use crate::sys::{self, Linux, OfThread};
use crate::threads::Me;
use crate::{loader, real};

/// How long the time-keeper waits between two ticks of a slice that is to end: so long for so many
/// ticks, then for the next. A holder that does not look for as long is in C code.
const PACES: [(u32, Nanos); 7] = [
    (10, Nanos::from_micros(2)),
    (1, Nanos::from_micros(50)),
    (20, Nanos::from_micros(2)),
    (40, Nanos::from_micros(25)),
    (40, Nanos::from_micros(250)),
    (40, Nanos::from_millis(1)),
    (u32::MAX, Nanos::from_millis(10)),
];

/// Waits that are shorter are spent awake.
const SPIN: Nanos = Nanos::from_micros(10);

/// While somebody waits it looks so often, and need not be told of a slice that ends later.
const LOOK: Nanos = Nanos::from_millis(5);

/// The time-keeper's own wait while somebody waits for the lock.
const TICK_MS: c_int = 10;

/// Where the time-keeper waits for events: what its call returns to; 0: not known.
static CALLER: AtomicUsize = AtomicUsize::new(0);

/// The time-keeper, while it sleeps in a wait that may be ended; 0: it does not.
static ASLEEP: AtomicU32 = AtomicU32::new(0);

/// The time-keeper; 0: not known.
static THREAD: AtomicU32 = AtomicU32::new(0);

/// The core that the holder took the lock on, + 1; 0: not known.
static CORE: AtomicU32 = AtomicU32::new(0);

/// Where it may run: see `Steer::keep_of_asker`.
static PARKER: Parker = Parker::new();

/// When it looks again by itself, in nanoseconds.
static WAKES: AtomicU64 = AtomicU64::new(0);

/// Until when a thread that has never had the lock is let in at once: it has no number yet, which a
/// policy would know it by. 0: there is none.
static NEWCOMER: AtomicU64 = AtomicU64::new(0);

/// One that does not come after this long does not come.
const NEWCOMER_FOR: Nanos = Nanos::from_millis(100);

/// Who is about to wait, as number + 1, and has the mutex that a holder needs to yield: it is not asked
/// before. That one has the time-keeper look then. 0: nobody is.
static COMING: AtomicU32 = AtomicU32::new(0);

/// Ticks of the slice that is to end.
static TICKS: AtomicU32 = AtomicU32::new(0);

/// A thread wants the lock that never had it.
pub fn comes_anew() {
    NEWCOMER.store(Linux.now().after(NEWCOMER_FOR).0, Ordering::Relaxed);
    hurry(Wish { asks: true, timer: Nanos::MAX });
}

/// It has it.
pub fn has_come() {
    NEWCOMER.store(0, Ordering::Relaxed);
}

/// The calling thread has taken the lock.
pub fn slice_begins() {
    TICKS.store(0, Ordering::Relaxed);
    CORE.store(Linux.core().map_or(0, |core| core + 1), Ordering::Relaxed);
}

/// The calling thread is about to wait for the lock, or to take it: it has the lock's mutex, and perhaps not
/// for long the core.
pub fn comes(me: Me) {
    COMING.store(me.who.0 + 1, Ordering::Relaxed);
}

/// It waits, without the mutex, or has the lock. Whether it was about to until now.
pub fn has_entered(me: Me) -> bool {
    let is_it = COMING.load(Ordering::Relaxed) == me.who.0 + 1;
    if is_it {
        COMING.store(0, Ordering::Relaxed);
    }
    is_it
}

/// Whether the holder's slice is on its way to its end.
pub fn has_ticked() -> bool {
    TICKS.load(Ordering::Relaxed) > 0
}

/// The time-keeper looks again, if it would look too late.
pub fn hurry(wish: Wish) {
    if !wish.asks && wish.timer.0 >= WAKES.load(Ordering::Relaxed) {
        return;
    }
    prod(0);
}

/// The time-keeper looks now; `tries`: how often it was told to and did not.
pub fn prod(tries: u32) {
    let sleeper = ASLEEP.swap(0, Ordering::AcqRel);
    let thread = if sleeper == 0 && tries > 0 { THREAD.load(Ordering::Relaxed) } else { sleeper };
    if thread == 0 {
        return;
    }
    let keep = place_to_look(tries);
    if keep != Keep::Anywhere {
        PARKER.keep(&OfThread(thread), keep);
    }
    if sleeper != 0 {
        sys::interrupt(sleeper);
    }
}

/// Whether a call of `epoll_wait` is the time-keeper's.
pub fn is_time_keeper(caller: usize) -> bool {
    let known = CALLER.load(Ordering::Relaxed);
    if known == caller && caller != 0 {
        return true;
    }
    let ours = ticks::a_function();
    if known != 0 || ours == 0 {
        return false;
    }
    let is_it = loader::are_together(caller, ours) && !ticks::is_of_ruby();
    if is_it {
        CALLER.store(caller, Ordering::Relaxed);
    }
    is_it
}

/// One tick more of a slice that is to end, without any sleep: `Some`, and whether to look for events, too.
fn ticks_at_once(begun: Nanos, limit_ms: c_int) -> Option<bool> {
    let ticks = TICKS.load(Ordering::Relaxed);
    let pause = pause(ticks);
    let asks =
        || COMING.load(Ordering::Relaxed) == 0 && steered(wish).is_some_and(|wish| wish.asks);
    let here = Linux.core().map(|core| core + 1);
    let shares_core = here == Some(CORE.load(Ordering::Relaxed));
    if !(1..=TICK_MS).contains(&limit_ms) || pause > SPIN || shares_core || !asks() {
        return None;
    }
    while Linux.now() < begun.after(pause) {
        spin_loop();
    }
    // It may have yielded meanwhile: then this tick would be another one's.
    if !asks() {
        return None;
    }
    TICKS.store(ticks.saturating_add(1), Ordering::Relaxed);
    Some(ticks.is_multiple_of(8))
}

/// The time-keeper's wait for events.
pub unsafe extern "C" fn keep_time(
    events_of: c_int,
    events: *mut c_void,
    most: c_int,
    limit_ms: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    let look = || unsafe { real::epoll_wait(events_of, events, most, 0) };
    let begun = Linux.now();
    if let Some(look_too) = ticks_at_once(begun, limit_ms) {
        return if look_too { look() } else { 0 };
    }
    let me = sys::thread_id();
    THREAD.store(me, Ordering::Relaxed);
    sys::sleep_exactly();
    let kept = sys::keep_interrupts();
    let found = loop {
        // Who wants it to look later than this finds it in `ASLEEP`.
        WAKES.store(u64::MAX, Ordering::Relaxed);
        ASLEEP.store(me, Ordering::SeqCst);
        let Some(Wish { asks, timer }) = steered(wish) else {
            ASLEEP.store(0, Ordering::Relaxed);
            kept.restore();
            // SAFETY: as above.
            return unsafe { real::epoll_wait(events_of, events, most, limit_ms) };
        };
        let now = Linux.now();
        let asks = (asks && COMING.load(Ordering::Relaxed) == 0) || is_newcomer(now);
        let deadline = (limit_ms >= 0)
            .then(|| begun.after(Nanos::from_millis(limit_ms.unsigned_abs().into())));
        let is_tick = (1..=TICK_MS).contains(&limit_ms);
        let soon = if is_tick { now.after(LOOK) } else { Nanos::MAX };
        let mut until = deadline.unwrap_or(Nanos::MAX).min(timer).min(soon);
        if asks && is_tick {
            let ticks = TICKS.load(Ordering::Relaxed);
            let pause = pause(ticks);
            let due = begun.after(pause);
            let shares_core =
                Linux.core().map(|core| core + 1) == Some(CORE.load(Ordering::Relaxed));
            if pause <= SPIN && !shares_core {
                while Linux.now() < due {
                    spin_loop();
                }
            }
            if Linux.now() >= due {
                TICKS.store(ticks.saturating_add(1), Ordering::Relaxed);
                break look();
            }
            until = until.min(due);
        }
        WAKES.store(until.0, Ordering::Relaxed);
        let limit = (until < Nanos::MAX).then(|| until.since(now));
        sys::wait_readable(events_of, limit, kept);
        ASLEEP.store(0, Ordering::Relaxed);
        let found = look();
        let is_over = deadline.is_some_and(|deadline| Linux.now() >= deadline);
        if found != 0 || is_over {
            break found;
        }
    };
    ASLEEP.store(0, Ordering::Relaxed);
    kept.restore();
    found
}

pub fn is_newcomer(now: Nanos) -> bool {
    now.0 < NEWCOMER.load(Ordering::Relaxed)
}

/// What the time-keeper waits before the next tick.
fn pause(ticks: u32) -> Nanos {
    let mut left = ticks;
    for (count, pause) in PACES {
        if left < count {
            return pause;
        }
        left -= count;
    }
    Nanos::from_millis(10)
}

/// In a forked child: the time-keeper is begun anew.
pub fn forked() {
    ASLEEP.store(0, Ordering::Relaxed);
    THREAD.store(0, Ordering::Relaxed);
    TICKS.store(0, Ordering::Relaxed);
    NEWCOMER.store(0, Ordering::Relaxed);
    COMING.store(0, Ordering::Relaxed);
    PARKER.forked();
}
