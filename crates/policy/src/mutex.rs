//! `mutex`: a plain lock without any order, and a timer that has the holder give it up.
//!
//! Source: MRI 1.9 on Linux, slides 20, 36 and 52 of Beazley's "In Search of the Perfect GIL"
//! (2011).
//! - state: a queue in order of arrival;
//! - on arrive: the oldest waiter asks at the next tick of a clock of 10 ms;
//! - on release: the oldest waiter is woken to try. The one that gave the lock up takes it back
//!   meanwhile, if it wants it.
//!
//! Tunable: `interval`, the clock (10 ms, MRI's `TIME_QUANTUM`).
//!
//! Pathology: starvation. The holder is back before the waiter has woken up, each time anew; a
//! message took thousands of times as long. It promises no bound.

use crate::Slot;
use crate::classic::{Classic, Succession};
use crate::timer::Params;

pub(crate) fn new(params: Params, slots: &mut [Slot]) -> Classic<'_> {
    Classic::timed(params.interval, Succession::Barge, slots)
}
