//! Whether what was read can be true.

use crate::format::state;

use super::{ReadError, ThreadSums, Trace};

/// The process may write on while its file is read, so that one number is newer than another.
const SLACK: u64 = 1_000;

impl Trace {
    /// The trace, unless the table of threads says what cannot be.
    pub(super) fn checked(self) -> Result<Trace, ReadError> {
        match self.threads.iter().find(|thread| !is_sound(thread)) {
            Some(thread) => Err(ReadError::Thread(thread.index)),
            None => Ok(self),
        }
    }
}

fn is_sound(thread: &ThreadSums) -> bool {
    let most = |of: u64| of.saturating_add(SLACK);
    let sum = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
    thread.state <= state::ENDED
        && thread.acquires < u64::from(u32::MAX) << 16
        && thread.waits <= most(thread.acquires)
        && thread.switches <= most(thread.acquires)
        && thread.forced <= most(thread.acquires)
        && sum(&thread.wait_counts) <= most(thread.waits)
        && sum(&thread.hold_counts) <= most(thread.acquires)
}
