//! `timer`: a fair lock, and a timer that has the holder give it up.
//!
//! Source: MRI 1.9 where mutexes are fair (Mac OS X), slides 36, 54 to 62 of Beazley's "In Search
//! of the Perfect GIL" (2011).
//! - state: a queue in order of arrival;
//! - on arrive: the oldest waiter asks at the next tick of a clock of 10 ms;
//! - on release: the lock is kept for the oldest waiter.
//!
//! Tunable: `interval`, the clock (10 ms, MRI's `TIME_QUANTUM`).
//!
//! Pathology: the convoy. Each call that may block hands the lock to the CPU-bound thread, which
//! keeps it until the next tick: four calls a message, 40 ms.

use crate::classic::{Classic, Succession};
use crate::{Nanos, Slot};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    pub interval: Nanos,
}

impl Params {
    pub const DEFAULT: Params = Params { interval: Nanos::from_millis(10) };
}

pub(crate) fn new(params: Params, slots: &mut [Slot]) -> Classic<'_> {
    Classic::timed(params.interval, Succession::HandOff, slots)
}
