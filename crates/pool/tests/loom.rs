//! The pool's sleep and the epochs of a value, in every order that the memory model allows. Run by
//! `ci/loom`.
#![cfg(loom)]

use std::time::Duration;

use deconvoy_pool::{Need, Pool, ProcessGlobal, Rest, Worker};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// In the model nobody is idle for so long.
const IDLE: Duration = Duration::from_secs(1_000_000);

fn pushed<T>(pool: &Pool<T>, item: T, by: Option<&Worker>) -> Need {
    pool.push(item, by);
    pool.need()
}

#[test]
fn what_is_pushed_while_the_worker_goes_to_sleep_is_done() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1));
        let done = Arc::new(AtomicUsize::new(0));
        assert_eq!(pushed(&pool, 1, None), Need::Worker);
        let worker = {
            let (pool, done) = (pool.clone(), done.clone());
            thread::spawn(move || {
                let mut worker = pool.join();
                while done.load(Ordering::SeqCst) < 2 {
                    match pool.next(&mut worker) {
                        Some(item) => {
                            done.fetch_add(item, Ordering::SeqCst);
                        }
                        None => assert_eq!(pool.rest(&mut worker, IDLE), Rest::Awake),
                    }
                }
            })
        };
        // It is at work, goes to sleep, or sleeps: in each case it does this.
        assert_eq!(pushed(&pool, 1, None), Need::Nothing);
        worker.join().unwrap();
        assert_eq!(pool.pending(), 0);
    });
}

#[test]
fn what_is_taken_back_is_not_done_as_well() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1));
        let ticket = pool.push(7, None);
        assert_eq!(pool.need(), Need::Worker);
        let worker = {
            let pool = pool.clone();
            thread::spawn(move || pool.next(&mut pool.join()).is_some())
        };
        let taken = pool.take(ticket, |item| *item == 7).is_some();
        assert_ne!(taken, worker.join().unwrap());
        assert_eq!(pool.pending(), 0);
    });
}

#[test]
fn a_reader_never_goes_back_and_sees_what_it_knows_of() {
    loom::model(|| {
        let global = Arc::new(ProcessGlobal::new(0));
        let written = Arc::new(AtomicUsize::new(0));
        let writer = {
            let (global, written) = (global.clone(), written.clone());
            thread::spawn(move || {
                global.set(1);
                written.store(1, Ordering::Release);
            })
        };
        let mut reader = global.reader();
        let first = *reader.get();
        let known = written.load(Ordering::Acquire);
        let second = *reader.get();
        assert!(first <= second);
        // Whoever knows that it was written reads what was written.
        assert!(known <= second);
        writer.join().unwrap();
        assert_eq!(*reader.get(), 1);
    });
}
