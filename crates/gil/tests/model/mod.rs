//! A system of loom's own parts, for what is checked with it.

use deconvoy_gil::{AtomicU32, System};
use deconvoy_policy::{Driver, Nanos};
use loom::sync::atomic::Ordering;
use loom::sync::{Arc, Condvar, Mutex};

pub const DRIVER: Driver = Driver { cores: 2, counts_instructions: false };

/// A futex of loom's own parts. Deadlines never come: what should have woken a waiter and did not
/// leaves it asleep, and loom reports that nothing moves.
#[derive(Clone)]
pub struct Model {
    inside: Arc<(Mutex<()>, Condvar)>,
}

impl Model {
    pub fn new() -> Model {
        Model { inside: Arc::new((Mutex::new(()), Condvar::new())) }
    }
}

pub const NOW: Nanos = Nanos(1_000);

impl System for Model {
    fn now(&self) -> Nanos {
        NOW
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, _: Option<Nanos>) {
        let guard = self.inside.0.lock().unwrap();
        // As the kernel does: the look at the word and the sleep are one step.
        if word.load(Ordering::SeqCst) == expected {
            drop(self.inside.1.wait(guard).unwrap());
        }
    }

    fn futex_wake(&self, _: &AtomicU32, _: u32) {
        let _guard = self.inside.0.lock().unwrap();
        self.inside.1.notify_all();
    }
}
