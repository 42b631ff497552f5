//! What the operations of this machine take: the costs that the simulator reckons with.
//!
//! Each is measured on real threads with what the lab itself uses. Quantiles are equally far apart in
//! share, the least first.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use deconvoy_gil::System;
use deconvoy_gil::os::Os;
use deconvoy_policy::Nanos;

use crate::gil::{AnyGil, Choice, Gil};
use crate::vm::{COUNT_DOWN, Shared, Thread};
use crate::with_gil;

const OS: Os<'static> = Os { native_ids: &[] };
const ROUNDS: usize = 2_000;
const QUANTILES: usize = 33;

/// How long a thread sleeps that is woken as waiters are, and one that has only just gone to sleep.
const ASLEEP_NS: u64 = 300_000;
const FRESH_NS: u64 = 2_000;

/// What was measured: a name of `Costs` and its value, or its quantiles, in nanoseconds.
pub type Measured = Vec<(&'static str, Vec<f64>)>;

fn now() -> u64 {
    OS.now().0
}

fn quantiles(mut times: Vec<u64>) -> Vec<f64> {
    times.sort_unstable();
    // The very last is as likely to be the machine's as the operation's.
    let last = times.len().saturating_sub(1 + times.len() / 500);
    let place = |step: usize| times.get(step * last / (QUANTILES - 1)).copied().unwrap_or(0);
    (0..QUANTILES).map(|step| place(step) as f64).collect()
}

/// The median of some lengths of time.
pub fn median(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0) as f64
}

/// Measures everything; `said` is told what comes next.
///
/// # Errors
/// A socket or a file could not be had.
pub fn measure(mut said: impl FnMut(&str)) -> io::Result<Measured> {
    said("instructions");
    let instruction = instruction();
    said("the lock");
    let (shared, own) = (pair("timeout", 2), pair("timeout", 1));
    said("calls");
    let call = call()?;
    let (send, receive) = sockets()?;
    said("wake-ups");
    let (wakes, fresh) = (wake_ups(ASLEEP_NS), wake_ups(FRESH_NS));
    let spin = spin();
    let hand_offs = with_gil!(&gil("adaptive"), gil => hand_offs(gil));
    said("context switches");
    let switch = switches();
    let (affinity, migrate) = affinity();
    let interrupt = (interrupts() - 2.0 * median(switch.clone())).max(0.0);
    said("timers");
    let idle = median(wakes.idle.clone());
    let late = timers();
    Ok(vec![
        ("instruction_ns", vec![instruction]),
        ("check_ns", vec![(instruction * COUNT_DOWN.len() as f64 / 2.0).round()]),
        ("acquire_ns", vec![(shared / 2.0).round()]),
        ("release_ns", vec![(shared / 2.0).round()]),
        ("own_ns", vec![(own / 2.0).round()]),
        ("call_ns", vec![call]),
        ("send_ns", quantiles(send)),
        ("receive_ns", quantiles(receive)),
        ("wake_ns", quantiles(wakes.cost)),
        ("fresh_waker_ns", quantiles(fresh.cost)),
        ("idle_wake_ns", quantiles(wakes.idle)),
        ("fresh_wake_ns", quantiles(fresh.idle)),
        ("switch_ns", quantiles(switch)),
        ("spin_ns", vec![spin]),
        ("hand_off_ns", quantiles(hand_offs)),
        ("interrupt_ns", vec![interrupt.round()]),
        // What a sleeper is late by, less what it takes to wake up.
        ("timer_ns", vec![(median(late) - idle).max(0.0)]),
        ("affinity_ns", vec![affinity]),
        ("migrate_ns", vec![migrate]),
    ])
}

fn gil(lock: &str) -> AnyGil {
    let choice = Choice::parse(lock).expect("a policy");
    AnyGil::new(choice, 8, None).expect("no trace is wanted")
}

fn instruction() -> f64 {
    const COUNT: i64 = 2_000_000;
    with_gil!(&gil("timeout"), gil => {
        let me = gil.start_thread("counts");
        let shared = Shared::default();
        let times = (0..9).map(|_| {
            let mut thread = Thread::new(gil, me, &shared, ());
            thread.set_local(0, COUNT);
            let begun = now();
            thread.run(COUNT_DOWN);
            now() - begun
        });
        // The last instruction ends the program.
        let instructions = COUNT * (COUNT_DOWN.len() as i64 - 1);
        median(times.collect()) / instructions as f64
    })
}

/// An acquisition and a release, of a lock that so many threads have used.
fn pair(lock: &str, threads: u32) -> f64 {
    // Fewer than make a lock one thread's own again.
    const PAIRS: u64 = 200;
    with_gil!(&gil(lock), gil => {
        let me = gil.start_thread("one");
        let other = gil.start_thread("two");
        let times = (0..201).map(|_| {
            gil.release(gil.acquire(if threads > 1 { other } else { me }));
            let begun = now();
            for _ in 0..PAIRS {
                gil.release(gil.acquire(me));
            }
            (now() - begun) / PAIRS
        });
        median(times.collect())
    })
}

fn call() -> io::Result<f64> {
    let mut zero = std::fs::File::open("/dev/zero")?;
    let mut byte = [0];
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = now();
        zero.read_exact(&mut byte)?;
        times.push(now() - begun);
    }
    Ok(median(times))
}

/// To send 8 KiB that nobody waits for yet, and to receive them when they are there: by a thread that
/// has slept for a millisecond, as those that wait for messages have. (In a loop without sleep, with all
/// of it in the caches, they take a third as long.)
fn sockets() -> io::Result<(Vec<u64>, Vec<u64>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut one = TcpStream::connect(listener.local_addr()?)?;
    let (mut other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let mut message = [0; 8_192];
    for _ in 0..ROUNDS / 4 {
        std::thread::sleep(Duration::from_millis(1));
        let begun = now();
        one.write_all(&message)?;
        sent.push(now() - begun);
        let begun = now();
        other.read_exact(&mut message)?;
        received.push(now() - begun);
    }
    Ok((sent, received))
}

struct WakeUps {
    /// What a wake-up costs the waker.
    cost: Vec<u64>,
    /// From the waker's call until the woken thread runs, on a core that was idle.
    idle: Vec<u64>,
}

/// Has a thread sleep, and wakes it when it has slept for so long.
fn wake_ups(idle_ns: u64) -> WakeUps {
    let word = AtomicU32::new(0);
    let (asleep, called, woke) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut found = WakeUps { cost: Vec::new(), idle: Vec::new() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS as u32 {
                asleep.store(true, Ordering::Release);
                while word.load(Ordering::Acquire) == round {
                    OS.futex_wait(&word, round, None);
                }
                woke.store(now(), Ordering::Release);
            }
        });
        for round in 0..ROUNDS as u32 {
            while !asleep.swap(false, Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let until = now() + idle_ns;
            while now() < until {
                std::hint::spin_loop();
            }
            woke.store(0, Ordering::Relaxed);
            called.store(now(), Ordering::Relaxed);
            word.store(round + 1, Ordering::Release);
            OS.futex_wake(&word, 1);
            let begun = called.load(Ordering::Relaxed);
            found.cost.push(now() - begun);
            while woke.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            found.idle.push(woke.load(Ordering::Relaxed).saturating_sub(begun));
        }
    });
    found
}

/// Until a thread that spins on another core has seen a word change.
fn spin() -> f64 {
    let word = AtomicU32::new(0);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS as u32 {
                while word.load(Ordering::Acquire) != 2 * round + 1 {
                    std::hint::spin_loop();
                }
                word.store(2 * round + 2, Ordering::Release);
            }
        });
        for round in 0..ROUNDS as u32 {
            let begun = now();
            word.store(2 * round + 1, Ordering::Release);
            while word.load(Ordering::Acquire) != 2 * round + 2 {
                std::hint::spin_loop();
            }
            times.push((now() - begun) / 2);
        }
    });
    median(times)
}

/// From one thread's call that wakes another on the same core, as it goes to sleep itself, until that
/// one runs.
fn switches() -> Vec<u64> {
    let Some(allowed) = OS.allowed() else { return vec![1_500] };
    let Some(place) = allowed.iter().position(|&word| word != 0) else { return vec![1_500] };
    let mut one_core = [0; 16];
    one_core[place] = 1 << allowed[place].trailing_zeros();
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let called = AtomicU64::new(0);
    let mut times = Vec::new();
    // Who was woken says when, and wakes the other one.
    let answer = |mine: &AtomicU32, other: &AtomicU32, round: u32| {
        while mine.load(Ordering::Acquire) < round {
            OS.futex_wait(mine, round - 1, None);
        }
        let took = now().saturating_sub(called.load(Ordering::Relaxed));
        called.store(now(), Ordering::Relaxed);
        other.store(round, Ordering::Release);
        OS.futex_wake(other, 1);
        took
    };
    let rounds = ROUNDS as u32;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            OS.allow(&one_core);
            (1..=rounds).for_each(|round| {
                answer(&words[1], &words[0], round);
            });
        });
        OS.allow(&one_core);
        std::thread::sleep(Duration::from_millis(1));
        words[1].store(1, Ordering::Release);
        OS.futex_wake(&words[1], 1);
        for round in 1..rounds {
            while words[0].load(Ordering::Acquire) < round {
                OS.futex_wait(&words[0], round - 1, None);
            }
            times.push(now().saturating_sub(called.load(Ordering::Relaxed)));
            called.store(now(), Ordering::Relaxed);
            words[1].store(round + 1, Ordering::Release);
            OS.futex_wake(&words[1], 1);
        }
        OS.allow(&allowed);
    });
    times
}

/// A thread that computes, and one that runs elsewhere for a while, needs the lock for a moment, and
/// says so: from just before the first one gives the lock up until the second one has it, in
/// nanoseconds, some thousand times.
pub fn hand_offs<G: Gil>(gil: &G) -> Vec<u64> {
    const TURNS: usize = 2_000;
    const ELSEWHERE_NS: u64 = 50_000;
    let (wants, over, given) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let compute = || {
        let me = gil.start_thread("computes");
        let mut held = gil.acquire(me);
        while !over.load(Ordering::Relaxed) {
            if gil.is_asked() || wants.load(Ordering::Relaxed) {
                gil.answered();
                given.store(now(), Ordering::Relaxed);
                gil.release(held);
                held = gil.acquire(me);
            }
        }
        gil.release(held);
    };
    let mut taken = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(compute);
        let me = gil.start_thread("comes");
        for _ in 0..TURNS {
            let begun = now();
            while now() < begun + ELSEWHERE_NS {
                std::hint::spin_loop();
            }
            wants.store(true, Ordering::Relaxed);
            let held = gil.acquire(me);
            let at = now();
            wants.store(false, Ordering::Relaxed);
            // The other one may not have begun yet, or not have the lock.
            let given = given.load(Ordering::Relaxed);
            if given > begun {
                taken.push(at.saturating_sub(given));
            }
            gil.release(held);
        }
        over.store(true, Ordering::Relaxed);
    });
    taken
}

/// For how long a thread does not run in which another one's timer goes off, on the same core: that
/// one sleeps again at once. 0 where threads cannot be kept on a core.
fn interrupts() -> f64 {
    const SLEEP: Duration = Duration::from_micros(400);
    const GAP_NS: u64 = 1_000;
    const LONGEST_NS: u64 = 2_000_000_000;
    let Some(allowed) = OS.allowed() else { return 0.0 };
    let Some(place) = allowed.iter().position(|&word| word != 0) else { return 0.0 };
    let mut one_core = [0; 16];
    one_core[place] = 1 << allowed[place].trailing_zeros();
    let (over, wakes) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut gaps = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            OS.allow(&one_core);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(SLEEP);
                wakes.fetch_add(1, Ordering::Relaxed);
            }
        });
        OS.allow(&one_core);
        let begun = now();
        let (mut before, mut seen) = (begun, 0);
        while gaps.len() < ROUNDS / 2 && before - begun < LONGEST_NS {
            let at = now();
            let woke = wakes.load(Ordering::Relaxed);
            if at - before > GAP_NS && woke != seen {
                gaps.push(at - before);
            }
            (before, seen) = (at, woke);
        }
        over.store(true, Ordering::Relaxed);
        OS.allow(&allowed);
    });
    median(gaps)
}

/// To set where the calling thread may run: without a move, and with one.
fn affinity() -> (f64, f64) {
    let Some(allowed) = OS.allowed() else { return (1_000.0, 20_000.0) };
    let (mut stays, mut moves) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS / 10 {
        let Some(here) = OS.core() else { break };
        let mut others = allowed;
        others[here as usize / 64] &= !(1 << (here % 64));
        let begun = now();
        OS.allow(&allowed);
        stays.push(now() - begun);
        let begun = now();
        if OS.allow(&others) {
            moves.push(now() - begun);
            OS.allow(&allowed);
        }
    }
    (median(stays), if moves.is_empty() { 20_000.0 } else { median(moves) })
}

/// What a sleep of 1 ms takes beyond that.
fn timers() -> Vec<u64> {
    const SLEEP: Nanos = Nanos(1_000_000);
    (0..ROUNDS / 4)
        .map(|_| {
            let due = now() + SLEEP.0;
            OS.futex_wait(&AtomicU32::new(0), 0, Some(Nanos(due)));
            now().saturating_sub(due)
        })
        .collect()
}
