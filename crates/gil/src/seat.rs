//! Who waits at a gate, how a wait ends, and whose the lock is.

use deconvoy_policy::WaiterId;

/// A thread at a gate: its number and which of the threads under that number it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    pub who: WaiterId,
    /// Never 0; another value when a new thread goes by the same number.
    pub generation: u32,
    pub priority: i8,
}

impl Seat {
    /// What tells it from another thread under its number, and from itself with another priority.
    pub(crate) fn key(self) -> u32 {
        Seat::stem(self.generation) << 8 | u32::from(self.priority.cast_unsigned())
    }

    /// As much of a generation as there is room for; never 0.
    pub(crate) fn stem(generation: u32) -> u32 {
        (generation & 0x00ff_ffff).max(1)
    }
}

/// How a wait ended: the caller looks at the lock again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Try to take the lock; if it is held, wait again.
    Retry,
    /// The waiter is to ask the holder to drop the lock (CPython does so on a time-out), then as
    /// for `Retry`. There is a holder, but if the lock is being destroyed.
    Ask,
}

/// Whose the lock is.
///
/// | from | to | on |
/// |---|---|---|
/// | `Free` | `Held` | a thread takes it |
/// | `Held` | `Free` or `Kept` | the holder gives it up, and the policy grants it |
/// | `Free` | `Kept` | the policy grants it later |
/// | `Kept` | `Kept` for another | the policy prefers one who came meanwhile |
/// | `Kept` | `Free` | the one it was kept for is gone |
/// | `Kept` | `Held` | the one it was kept for takes it |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    Free,
    Kept(WaiterId),
    Held,
}
