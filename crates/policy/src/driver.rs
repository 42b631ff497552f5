//! What the drivers have in common beside a policy: what each is able to do, and how long they wait.

use crate::Nanos;

/// What a driver is able to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Driver {
    /// So many threads can run at a time.
    pub cores: u32,
    /// It runs the instructions itself, and gives the lock up every so many of them if the policy
    /// is one of [`crate::Spec::instructions`].
    pub counts_instructions: bool,
}

/// A waiter whom nothing has reached for this long asks all the same: it learns of a runtime
/// that is shutting down, and a wake-up that a driver lost costs a second, not the program.
pub const FLOOR: Nanos = Nanos::from_millis(1_000);

/// How long a thread that must let another one in stays awake for that: the other one, awake on
/// another core, takes 1 to 2 us.
pub const SWITCH_LINGER: Nanos = Nanos::from_micros(20);

/// How long it sleeps at first, and at most, when the other one takes over its core. That one is
/// done with the mutexes after 20 to 30 us.
pub const OUT_OF_THE_WAY: Nanos = Nanos::from_micros(50);
pub const LONGEST_SLEEP: Nanos = Nanos::from_millis(2);

/// So many acquisitions in a row by one thread, with nobody waiting, and the lock is its own. They
/// cost, at 150 ns each, what the end of that costs when it comes too soon: a wake-up, 40 us.
pub const ROW: u32 = 256;
