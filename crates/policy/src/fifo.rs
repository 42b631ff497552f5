//! `fifo`: the holder gives the lock up every 100 instructions, and the oldest waiter has it next.
//!
//! Source: CPython up to 3.1 where locks are fair (Windows), slides 53 to 58 of Beazley's "In
//! Search of the Perfect GIL" (2011).
//! - state: a queue in order of arrival;
//! - on arrive: nothing. Where nobody counts instructions (the preloaded library), the oldest
//!   waiter asks as often as they would take;
//! - on release: the lock is kept for the oldest waiter.
//!
//! Tunable: `instructions` from one release to the next (100, CPython's `_Py_CheckInterval`).
//!
//! Pathology: too many switches: two threads took nine times as long as one. And it convoys still:
//! each call that may block goes to the end of the line, behind every CPU-bound thread.

use crate::classic::{Classic, Succession};
use crate::ticks::Params;
use crate::{Driver, Slot};

pub(crate) fn new(params: Params, driver: Driver, slots: &mut [Slot]) -> Classic<'_> {
    Classic::counted(params.instructions, Succession::HandOff, driver, slots)
}
