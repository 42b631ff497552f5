//! The gate under real threads: a toy lock with CPython's protocol, every policy, and the
//! conformance of what was recorded with a fresh policy.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use deconvoy_gil::{
    AtomicU32, Gate, GateCell, Guard, Latch, Outcome, Parker, Seat, System, wait, wait_for_switch,
};
use deconvoy_policy::{
    Action, Actions, Driver, Event, Nanos, Observer, Policy, Slot, Spec, WaiterId,
};
use parking_lot::lock_api::RawMutex as _;

struct Os(Instant);

impl System for Os {
    fn now(&self) -> Nanos {
        Nanos(self.0.elapsed().as_nanos() as u64 + 1)
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, deadline: Option<Nanos>) {
        let left = deadline.map(|deadline| {
            let left = deadline.since(self.now()).0;
            libc::timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as i64,
            }
        });
        let left = left.as_ref().map_or(std::ptr::null(), |left| left as *const _);
        // SAFETY: the word and the time outlive the call.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, expected, left) };
    }

    fn futex_wake(&self, word: &AtomicU32, count: u32) {
        // SAFETY: the call reads only the word's address.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, count) };
    }
}

struct Raw(parking_lot::RawMutex);

impl Guard for &Raw {
    unsafe fn lock(&self) {
        self.0.lock();
    }
    unsafe fn try_lock(&self) -> bool {
        self.0.try_lock()
    }
    unsafe fn unlock(&self) {
        // SAFETY: as the caller says.
        unsafe { self.0.unlock() };
    }
}

type Log = Vec<(Nanos, Event, Vec<Action>)>;

#[derive(Default)]
struct Record(Arc<parking_lot::Mutex<Log>>);

impl Observer for Record {
    fn event(&mut self, now: Nanos, event: Event) {
        self.0.lock().push((now, event, Vec::new()));
    }
    fn action(&mut self, _: Nanos, action: Action) {
        self.0.lock().last_mut().unwrap().2.push(action);
    }
}

struct Locked(Arc<AtomicBool>);

impl Latch for Locked {
    fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn open(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A lock with CPython's protocol: `locked` under a mutex, a drop request, a forced switch.
struct Toy {
    mutex: Raw,
    switch_mutex: Raw,
    locked: Arc<AtomicBool>,
    request: AtomicBool,
    switches: AtomicU64,
    last: AtomicU64,
    cell: GateCell<'static, Record, Locked>,
    /// Not atomic: two holders would lose counts.
    inside: UnsafeCell<u64>,
    os: Os,
}

// SAFETY: `inside` is reached only by the holder of the toy lock, which is what is tested.
unsafe impl Sync for Toy {}

impl Toy {
    fn take(&self, seat: Seat) {
        let (mutex, switch_mutex) = (&self.mutex, &self.switch_mutex);
        // SAFETY: this thread holds neither; each is unlocked below.
        unsafe {
            mutex.lock();
            while self.locked.load(Ordering::Relaxed) {
                let interval = Nanos::from_millis(5);
                let switches = || self.switches.load(Ordering::Relaxed);
                let before = switches();
                let outcome = wait(&self.cell, &mutex, &self.os, seat, interval, switches);
                if outcome == Outcome::Ask
                    && self.locked.load(Ordering::Relaxed)
                    && switches() == before
                {
                    self.request.store(true, Ordering::Relaxed);
                }
            }
            switch_mutex.lock();
            self.locked.store(true, Ordering::Relaxed);
            if self.last.swap(u64::from(seat.who.0) + 1, Ordering::Relaxed)
                != u64::from(seat.who.0) + 1
            {
                self.switches.fetch_add(1, Ordering::Relaxed);
            }
            self.cell.gate().acquired(&self.os, self.os.now(), seat);
            self.cell.announce_taken(&self.os);
            self.request.store(false, Ordering::Relaxed);
            switch_mutex.unlock();
            mutex.unlock();
        }
    }

    fn drop_lock(&self, seat: Seat) {
        let (mutex, switch_mutex) = (&self.mutex, &self.switch_mutex);
        // SAFETY: as in `take`; the toy lock is held.
        unsafe {
            mutex.lock();
            self.locked.store(false, Ordering::Relaxed);
            self.cell.released(&self.os, self.os.now(), seat);
            mutex.unlock();
            if self.request.load(Ordering::Relaxed) {
                switch_mutex.lock();
                if self.last.load(Ordering::Relaxed) == u64::from(seat.who.0) + 1 {
                    self.request.store(false, Ordering::Relaxed);
                    wait_for_switch(&self.cell, &switch_mutex, &self.os, Some(seat.who));
                }
                switch_mutex.unlock();
            }
        }
    }
}

const CORES: u32 = 2;
const DRIVER: Driver = Driver { cores: CORES, counts_instructions: false };
const THREADS: usize = 6;
const POLICIES: [&str; 7] =
    ["timeout:1ms", "priority", "adaptive", "mutex:1ms", "timer:1ms", "ticks", "fifo"];

fn toy(policy: &str, log: Arc<parking_lot::Mutex<Log>>) -> &'static Toy {
    let spec = Spec::parse(policy).unwrap();
    let slots = Box::leak(vec![Slot::default(); THREADS].into_boxed_slice());
    let generations = Box::leak(vec![0; THREADS].into_boxed_slice());
    let parkers = Box::leak((0..THREADS).map(|_| Parker::new()).collect::<Box<[_]>>());
    let locked = Arc::new(AtomicBool::new(false));
    let latch = Locked(locked.clone());
    let policy = spec.build(DRIVER, slots);
    Box::leak(Box::new(Toy {
        mutex: Raw(parking_lot::RawMutex::INIT),
        switch_mutex: Raw(parking_lot::RawMutex::INIT),
        locked,
        request: AtomicBool::new(false),
        switches: AtomicU64::new(0),
        last: AtomicU64::new(0),
        cell: GateCell::new(Gate::new(1, policy, parkers, generations, CORES, Record(log), latch)),
        inside: UnsafeCell::new(0),
        os: Os(Instant::now()),
    }))
}

/// Threads that compute for a while, giving way when asked, and threads that hold for a moment and
/// stay away for a moment; a fixed amount of work each.
fn run(policy: &str) -> Log {
    let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let toy = toy(policy, log.clone());
    let total: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || {
                    let seat = Seat { who: WaiterId(number as u32), generation: 1, priority: 0 };
                    let computes = number % 2 == 0;
                    let steps = if computes { 3_000_000 } else { 300 };
                    toy.take(seat);
                    for _ in 0..steps {
                        // SAFETY: the toy lock is held.
                        unsafe { *toy.inside.get() += 1 };
                        let asked = toy.request.load(Ordering::Relaxed);
                        if asked || !computes {
                            toy.drop_lock(seat);
                            if !computes {
                                std::thread::yield_now();
                            }
                            toy.take(seat);
                        }
                    }
                    toy.drop_lock(seat);
                    steps
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // SAFETY: all threads have ended.
    assert_eq!(unsafe { *toy.inside.get() }, total, "{policy}: two holders at a time");
    Arc::try_unwrap(log).map_or_else(|log| log.lock().clone(), parking_lot::Mutex::into_inner)
}

#[test]
fn one_holder_at_a_time_and_nobody_is_left_behind() {
    for policy in POLICIES {
        run(policy);
    }
}

#[test]
fn what_was_recorded_replays() {
    for policy in POLICIES {
        let log = run(policy);
        let waits = log.iter().filter(|(_, event, _)| matches!(event, Event::Arrive { .. }));
        assert!(waits.count() > 20, "{policy}: without contention this proves nothing");
        let spec = Spec::parse(policy).unwrap();
        let mut slots = vec![Slot::default(); THREADS];
        let mut fresh = spec.build(DRIVER, &mut slots);
        for (now, event, said) in &log {
            let mut actions = Actions::new();
            fresh.step(*now, *event, &mut actions);
            assert_eq!(actions.as_slice(), said, "{policy}: {now:?} {event:?}");
        }
    }
}
