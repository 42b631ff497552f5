//! The lock under real threads, with every policy: one holder at a time, nobody is left behind, and
//! what was recorded follows from a fresh policy.

use std::cell::UnsafeCell;
use std::sync::Arc;

use deconvoy_gil::os::Os;
use deconvoy_gil::{AtomicU32, Lock, Parker, Parts, Seat};
use deconvoy_policy::{
    Action, Actions, Driver, Event, Nanos, Observer, Policy, Slot, Spec, WaiterId,
};

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

const CORES: u32 = 2;
const DRIVER: Driver = Driver { cores: CORES, counts_instructions: false };
const THREADS: usize = 6;
const POLICIES: [&str; 7] =
    ["timeout:1ms", "priority", "adaptive", "mutex:1ms", "timer:1ms", "ticks", "fifo"];

/// What the threads share: the lock, and a number that is not atomic, so that two holders would lose
/// counts.
struct Shared {
    lock: Lock<'static, Os<'static>, Record>,
    inside: UnsafeCell<u64>,
}

// SAFETY: `inside` is reached only by the holder of the lock, which is what is tested.
unsafe impl Sync for Shared {}

fn shared(policy: &str, sees_all: bool, log: Arc<parking_lot::Mutex<Log>>) -> &'static Shared {
    let parts = Parts {
        policy: Spec::parse(policy)
            .unwrap()
            .build(DRIVER, Box::leak(vec![Slot::default(); THREADS].into_boxed_slice())),
        word: Box::leak(Box::new(AtomicU32::new(0))),
        parkers: Box::leak((0..THREADS).map(|_| Parker::new()).collect::<Box<[_]>>()),
        known: Box::leak(vec![0; THREADS].into_boxed_slice()),
        cores: CORES,
        observer: Record(log),
        sees_all,
    };
    let lock = Lock::new(parts, Os { native_ids: &[] });
    Box::leak(Box::new(Shared { lock, inside: UnsafeCell::new(0) }))
}

/// Threads that compute for a while, giving way when asked, and threads that hold for a moment and
/// stay away for a moment; a fixed amount of work each.
fn run(policy: &str, sees_all: bool) -> Log {
    let log = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let shared = shared(policy, sees_all, log.clone());
    let total: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || {
                    let seat = Seat { who: WaiterId(number as u32), generation: 1, priority: 0 };
                    let computes = number % 2 == 0;
                    let steps = if computes { 3_000_000 } else { 300 };
                    let mut held = shared.lock.acquire(seat);
                    for _ in 0..steps {
                        // SAFETY: the lock is held.
                        unsafe { *shared.inside.get() += 1 };
                        if shared.lock.is_asked() || !computes {
                            drop(held);
                            if !computes {
                                std::thread::yield_now();
                            }
                            held = shared.lock.acquire(seat);
                        }
                    }
                    drop(held);
                    steps
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // SAFETY: all threads have ended.
    assert_eq!(unsafe { *shared.inside.get() }, total, "{policy}: two holders at a time");
    std::mem::take(&mut *log.lock())
}

#[test]
fn one_holder_at_a_time_and_nobody_is_left_behind() {
    for policy in POLICIES {
        run(policy, false);
    }
}

#[test]
fn what_was_recorded_replays() {
    for policy in POLICIES {
        let log = run(policy, true);
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
