//! A lock of our own, in every order that the memory model allows: never two holders, nobody left
//! behind, whether a thread has it to itself or others come. Run by `ci/loom`.
#![cfg(loom)]

mod model;

use deconvoy_gil::{AtomicU32, Guard, Lock, Mutex, Parker, Parts, Seat};
use deconvoy_policy::{Slot, Spec, WaiterId};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use model::{DRIVER, Model};

/// What only the holder may touch: loom says when two do.
struct Shared {
    lock: Lock<'static, Model, ()>,
    inside: UnsafeCell<u32>,
}

// SAFETY: `inside` is reached with the lock held, which is what is checked.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

fn shared(policy: &str, sees_all: bool) -> Shared {
    let parts = Parts {
        policy: Spec::parse(policy).unwrap().build(DRIVER, leak([Slot::default(); 2])),
        word: leak(AtomicU32::new(0)),
        parkers: leak([Parker::new(), Parker::new()]),
        known: leak([0; 2]),
        cores: 2,
        observer: (),
        sees_all,
    };
    Shared { lock: Lock::new(parts, Model::new()), inside: UnsafeCell::new(0) }
}

fn use_it(shared: &Shared, number: u32, times: u32) {
    let seat = Seat { who: WaiterId(number), generation: 1, priority: 0 };
    for _ in 0..times {
        let _held = shared.lock.acquire(seat);
        // SAFETY: the lock is held.
        shared.inside.with_mut(|inside| unsafe { *inside += 1 });
    }
}

fn check(policy: &'static str, sees_all: bool, times: [u32; 2]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Arc::new(shared(policy, sees_all));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || use_it(&shared, 1, times[1]))
        };
        use_it(&shared, 0, times[0]);
        other.join().unwrap();
        // SAFETY: all threads have ended.
        let used = shared.inside.with(|inside| unsafe { *inside });
        assert_eq!(used, times[0] + times[1]);
    });
}

#[test]
fn a_lock_that_is_one_threads_own_is_shared_when_another_comes() {
    for policy in ["timeout", "adaptive", "mutex"] {
        check(policy, false, [2, 1]);
    }
}

#[test]
fn a_lock_that_all_is_seen_of_has_one_holder() {
    for policy in ["timeout", "adaptive", "timer"] {
        check(policy, true, [1, 1]);
    }
}

#[test]
fn the_mutex_has_one_holder_and_wakes_who_sleeps_for_it() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let shared = Arc::new((Mutex::new(), UnsafeCell::new(0), Model::new()));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || add(&shared))
            })
            .collect();
        add(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
        // SAFETY: all threads have ended.
        assert_eq!(shared.1.with(|inside| unsafe { *inside }), 3);
    });
}

fn add(shared: &(Mutex, UnsafeCell<u32>, Model)) {
    let guard = shared.0.with(&shared.2);
    // SAFETY: this thread holds the mutex in between.
    unsafe {
        guard.lock();
        shared.1.with_mut(|inside| *inside += 1);
        guard.unlock();
    }
}
