//! Locks as their libraries have them, with no policy in between: what the driver costs shows beside
//! them. All that is added is that the holder gives way now and then, as every interpreter's does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use deconvoy_gil::os::{PthreadHeld, PthreadMutex};
use parking_lot::MutexGuard;

use super::{Gil, Me};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rival {
    Std,
    ParkingLot,
    ParkingLotFair,
    Pthread,
}

impl Rival {
    pub const ALL: [Rival; 4] =
        [Rival::Std, Rival::ParkingLot, Rival::ParkingLotFair, Rival::Pthread];

    pub fn name(self) -> &'static str {
        match self {
            Rival::Std => "std",
            Rival::ParkingLot => "parking_lot",
            Rival::ParkingLotFair => "parking_lot_fair",
            Rival::Pthread => "pthread",
        }
    }

    pub fn named(name: &str) -> Option<Rival> {
        Rival::ALL.into_iter().find(|rival| rival.name() == name)
    }
}

/// When the holder gives way: each time that a clock ticks, or that it has run so many instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Every {
    Time(Duration),
    Instructions(u32),
}

impl Every {
    const DEFAULT: Every = Every::Time(Duration::from_millis(5));

    /// Reads `5ms`, or `100` for instructions; nothing: 5 ms.
    pub(super) fn parse(text: &str) -> Result<Every, String> {
        if text.is_empty() {
            return Ok(Every::DEFAULT);
        }
        let wrong = || {
            format!(
                "{text:?} says not when to give way; write a time, as 5ms, or instructions, as 100"
            )
        };
        if let Ok(instructions) = text.parse() {
            return if instructions == 0 {
                Err(wrong())
            } else {
                Ok(Every::Instructions(instructions))
            };
        }
        let digits = text.trim_end_matches(|byte: char| byte.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let time = match &text[digits.len()..] {
            "us" => Duration::from_micros(number),
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            _ => return Err(wrong()),
        };
        if time.is_zero() { Err(wrong()) } else { Ok(Every::Time(time)) }
    }
}

/// A mutex whose holder has a value that says so.
pub trait Mutex: Default + Sync {
    type Held<'m>
    where
        Self: 'm;

    fn lock(&self) -> Self::Held<'_>;

    fn unlock<'m>(&'m self, held: Self::Held<'m>) {
        drop(held);
    }
}

impl Mutex for std::sync::Mutex<()> {
    type Held<'m> = std::sync::MutexGuard<'m, ()>;

    fn lock(&self) -> Self::Held<'_> {
        std::sync::Mutex::lock(self).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Mutex for parking_lot::Mutex<()> {
    type Held<'m> = MutexGuard<'m, ()>;

    fn lock(&self) -> Self::Held<'_> {
        parking_lot::Mutex::lock(self)
    }
}

/// parking_lot's, unlocked fairly: handed to the oldest waiter.
#[derive(Default)]
pub struct Fair(parking_lot::Mutex<()>);

impl Mutex for Fair {
    type Held<'m> = MutexGuard<'m, ()>;

    fn lock(&self) -> Self::Held<'_> {
        self.0.lock()
    }

    fn unlock<'m>(&'m self, held: Self::Held<'m>) {
        MutexGuard::unlock_fair(held);
    }
}

impl Mutex for PthreadMutex {
    type Held<'m> = PthreadHeld<'m>;

    fn lock(&self) -> Self::Held<'_> {
        PthreadMutex::lock(self)
    }
}

/// A mutex, and what has its holder give way.
pub struct Plain<M> {
    mutex: M,
    threads: AtomicU32,
    instructions: Option<u32>,
    /// Set by the clock; the clock stops when nobody else has it.
    asked: Arc<AtomicBool>,
}

impl<M: Mutex> Plain<M> {
    pub fn new(every: Every) -> Plain<M> {
        let asked = Arc::new(AtomicBool::new(false));
        let instructions = match every {
            Every::Instructions(instructions) => Some(instructions),
            Every::Time(time) => {
                let asked = asked.clone();
                std::thread::spawn(move || {
                    while Arc::strong_count(&asked) > 1 {
                        std::thread::sleep(time);
                        asked.store(true, Ordering::Relaxed);
                    }
                });
                None
            }
        };
        Plain { mutex: M::default(), threads: AtomicU32::new(0), instructions, asked }
    }
}

impl<M: Mutex> Gil for Plain<M> {
    type Held<'g>
        = M::Held<'g>
    where
        M: 'g;

    fn acquire(&self, _: Me) -> Self::Held<'_> {
        self.mutex.lock()
    }

    fn release<'g>(&'g self, held: Self::Held<'g>) {
        self.mutex.unlock(held);
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    fn answered(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    fn instructions(&self) -> Option<u32> {
        self.instructions
    }

    fn start_thread(&self, _: &str) -> Me {
        Me { number: self.threads.fetch_add(1, Ordering::Relaxed), priority: 0 }
    }
}
