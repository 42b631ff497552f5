//! The pool on real threads: nothing is lost, nothing is done twice, nobody starves.
#![cfg(not(loom))]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deconvoy_pool::{Need, Pool, Queue, Rest, Worker};
use proptest::prelude::*;

const IDLE: Duration = Duration::from_secs(60);

fn pushed<T>(pool: &Pool<T>, item: T, by: Option<&Worker>) -> Need {
    pool.push(item, by);
    pool.need()
}

/// Runs workers for as long as the pool is open, and counts what they do.
fn work(pool: &Pool<usize>, done: &[AtomicUsize], most: &AtomicUsize, busy: &AtomicUsize) {
    let mut worker = pool.join();
    loop {
        while let Some(item) = pool.next(&mut worker) {
            most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            done[item].fetch_add(1, Ordering::SeqCst);
            busy.fetch_sub(1, Ordering::SeqCst);
        }
        if pool.rest(&mut worker, IDLE) == Rest::Over {
            return;
        }
    }
}

#[test]
fn everything_is_done_once_by_as_many_as_may() {
    const COUNT: usize = 20_000;
    let pool = Pool::new(3);
    let done: Vec<_> = (0..2 * COUNT).map(|_| AtomicUsize::new(0)).collect();
    let (most, busy, taken) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (pool, done, taken, most, busy) = (&pool, &done, &taken, &most, &busy);
        let need = move |need: Need| {
            if need == Need::Worker {
                scope.spawn(move || work(pool, done, most, busy));
            }
        };
        let pushers: Vec<_> = (0..2)
            .map(|part| {
                scope.spawn(move || {
                    let mine = done.iter().enumerate().skip(part * COUNT).take(COUNT);
                    for (item, times) in mine {
                        let ticket = pool.push(item, None);
                        need(pool.need());
                        // Every third is taken back, if nobody was quicker.
                        if item % 3 == 0 && pool.take(ticket, |it| *it == item).is_some() {
                            taken.fetch_add(1, Ordering::SeqCst);
                            times.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        pool.close();
    });
    assert!(done.iter().all(|times| times.load(Ordering::SeqCst) == 1));
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!((pool.pending(), pool.at_work()), (0, 0));
}

#[test]
fn a_worker_that_is_blocked_makes_room() {
    let pool: Pool<u32> = Pool::new(1);
    assert_eq!(pushed(&pool, 1, None), Need::Worker);
    let mut first = pool.join();
    assert_eq!(pool.next(&mut first), Some(1));
    // What it waits for is queued by itself, and nobody else is there.
    assert_eq!(pushed(&pool, 2, Some(&first)), Need::Nothing);
    pool.leave();
    assert_eq!(pool.need(), Need::Worker);
    let mut second = pool.join();
    assert_eq!(pool.next(&mut second), Some(2));
    pool.unblock();
    // Two are at work now, and one may be.
    assert_eq!(pushed(&pool, 3, None), Need::Nothing);
    assert_eq!((pool.at_work(), pool.next(&mut second)), (2, None));
    pool.leave();
    assert_eq!(pool.next(&mut first), Some(3));
}

#[test]
fn the_newest_of_its_own_then_the_oldest_of_others() {
    let pool = Pool::new(8);
    let (mut one, mut two) = (pool.join(), pool.join());
    for item in [1, 2] {
        pool.push(item, Some(&one));
        pool.push(item + 10, None);
    }
    assert_eq!(pool.next(&mut one), Some(2));
    assert_eq!(pool.next(&mut two), Some(11));
    assert_eq!(pool.next(&mut two), Some(12));
    assert_eq!(pool.next(&mut two), Some(1));
    assert_eq!(pool.next(&mut two), None);
}

#[test]
fn who_was_woken_for_nothing_is_not_woken_for_each() {
    let pool = Pool::new(1);
    let woken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..10_000 {
            let ticket = pool.push((), None);
            if pool.need() == Need::Worker {
                scope.spawn(|| {
                    let mut worker = pool.join();
                    loop {
                        while pool.next(&mut worker).is_some() {}
                        if pool.rest(&mut worker, IDLE) == Rest::Over {
                            return;
                        }
                        woken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            pool.take(ticket, |()| true);
        }
        pool.close();
    });
    assert!(woken.load(Ordering::Relaxed) < 1_000, "{woken:?}");
}

#[test]
fn one_that_is_not_needed_ends() {
    let pool: Pool<()> = Pool::new(2);
    assert_eq!(pushed(&pool, (), None), Need::Worker);
    let mut worker = pool.join();
    while pool.next(&mut worker).is_some() {}
    while pool.rest(&mut worker, Duration::from_millis(1)) == Rest::Awake {}
    assert_eq!(pool.at_work(), 0);
    // The next one is made anew.
    assert_eq!(pushed(&pool, (), None), Need::Worker);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    Take(u64),
    Oldest,
    Newest,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Push),
        2 => (0u64..40).prop_map(Step::Take),
        1 => Just(Step::Oldest),
        1 => Just(Step::Newest),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// A queue does what a plain list would.
    #[test]
    fn a_queue_is_a_list(steps in steps()) {
        let mut queue = Queue::default();
        let mut list: Vec<(u64, u32)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let item = number as u32;
            match step {
                Step::Push => list.push((queue.push(item), item)),
                Step::Take(back) => {
                    let meant = list.len().checked_sub(1 + back as usize).map(|at| list[at]);
                    if let Some((ticket, item)) = meant {
                        list.retain(|one| one.1 != item);
                        prop_assert_eq!(queue.take(ticket, |it| *it == item), Some(item));
                        prop_assert_eq!(queue.take(ticket, |it| *it == item), None);
                    }
                }
                Step::Oldest => {
                    let oldest = (!list.is_empty()).then(|| list.remove(0).1);
                    prop_assert_eq!(queue.pop_oldest(), oldest);
                }
                Step::Newest => prop_assert_eq!(queue.pop_newest(), list.pop().map(|one| one.1)),
            }
            prop_assert_eq!(queue.len(), list.len());
        }
        let rest: Vec<_> = list.into_iter().map(|one| one.1).collect();
        let found: Vec<_> = std::iter::from_fn(|| queue.pop_oldest()).collect();
        prop_assert_eq!(found, rest);
        prop_assert!(queue.is_empty());
    }
}

#[test]
fn readers_grow_with_threads() {
    let global = deconvoy_pool::ProcessGlobal::new(0u64);
    let seen = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reader = global.reader();
                let mut last = 0;
                while last < 1_000 {
                    let now = *reader.get();
                    assert!(now >= last);
                    last = now;
                }
                seen.lock().unwrap().push(last);
            });
        }
        for value in 1..=1_000 {
            global.set(value);
        }
    });
    assert_eq!(seen.into_inner().unwrap(), [1_000; 3]);
}
