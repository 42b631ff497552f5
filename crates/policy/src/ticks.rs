//! `ticks`: the holder gives the lock up every 100 instructions, and may take it back.
//!
//! Source: CPython up to 3.1, slides 34, 35, 42 to 51 of Beazley's "In Search of the Perfect GIL"
//! (2011), and `sys.setcheckinterval`.
//! - state: a queue in order of arrival;
//! - on arrive: nothing. Where nobody counts instructions (the preloaded library), the oldest
//!   waiter asks as often as they would take;
//! - on release: the oldest waiter is woken to try. The one that gave the lock up takes it back
//!   meanwhile.
//!
//! Tunable: `instructions` from one release to the next (100, CPython's `_Py_CheckInterval`).
//!
//! Pathology: the battle. On several cores a woken waiter finds the lock taken again, and again;
//! waking it slows the holder down. It promises no bound.

use crate::classic::{Classic, Succession};
use crate::{Driver, Slot};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    pub instructions: u32,
}

impl Params {
    pub const DEFAULT: Params = Params { instructions: 100 };
}

pub(crate) fn new(params: Params, driver: Driver, slots: &mut [Slot]) -> Classic<'_> {
    Classic::counted(params.instructions, Succession::Barge, driver, slots)
}
