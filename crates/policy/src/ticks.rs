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

use crate::classic::{Classic, Next};
use crate::{Actions, Driver, Event, Nanos, Policy, Slot};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    pub instructions: u32,
}

impl Params {
    pub const DEFAULT: Params = Params { instructions: 100 };
}

#[derive(Debug)]
pub struct Ticks<'a>(Classic<'a>);

impl<'a> Ticks<'a> {
    pub fn new(params: Params, driver: Driver, slots: &'a mut [Slot]) -> Ticks<'a> {
        Ticks(Classic::counted(params.instructions, Next::Barge, driver, slots))
    }
}

impl Policy for Ticks<'_> {
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        self.0.step(now, event, actions);
    }

    fn forces_switch(&self) -> bool {
        false
    }

    /// None: whoever barges may do so for ever.
    fn bound(&self, _threads: u32, _check: Nanos) -> Option<Nanos> {
        None
    }
}
