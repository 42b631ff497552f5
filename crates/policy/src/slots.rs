//! What a policy keeps of each thread, in memory that the driver provides.

use crate::predictor::Predictor;
use crate::{Nanos, WaiterId};

/// As many threads at a time as the drivers of this project make room for.
pub const MAX_THREADS: usize = 16_384;

/// One thread's record. Opaque to drivers; all bytes zero is a valid, empty record, so that a
/// driver may take fresh pages from the kernel for it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Slot {
    /// Neighbours in the queue, as number + 1; 0: none.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) queue: QueueId,
    pub(crate) priority: i8,
    /// `adaptive`: its last release was forced.
    pub(crate) forced: bool,
    /// `adaptive`: [`Event::Woken`](crate::Event::Woken) was told for the absence that ends now.
    pub(crate) was_woken: bool,
    /// `adaptive`: so was one for the last absence of whoever woke it.
    pub(crate) inside: bool,
    pub(crate) predictor: Predictor,
    /// `adaptive`: who woke it from its last absence, as number + 1; 0: somebody outside.
    pub(crate) woken_by: u32,
    /// `adaptive`: the point of the policy's virtual clock at which its credit was zero.
    /// `timeout`: the number of switches when it last began to wait.
    pub(crate) mark: u64,
    /// When its timer will run out; zero: none is set.
    pub(crate) timer: Nanos,
    pub(crate) released_at: Nanos,
    /// `adaptive`: an absence since then counts as short up to this.
    pub(crate) grace: Nanos,
    /// `adaptive`: when it began to wait.
    pub(crate) arrived_at: Nanos,
    /// `adaptive`: when it last asked for the lock.
    pub(crate) asked_at: Nanos,
    /// `adaptive`: its credit when it was forced out.
    pub(crate) kept: Nanos,
    /// `adaptive`: a running mean of how long it keeps the lock between two real absences.
    pub(crate) burst: Nanos,
    /// `adaptive`: what it has held since its last real absence.
    pub(crate) burst_now: Nanos,
}

/// Which of a policy's queues a thread is in; zero, as fresh memory has it: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueId(pub(crate) u8);

impl QueueId {
    pub(crate) const NONE: QueueId = QueueId(0);
    pub(crate) const READY: QueueId = QueueId(1);
    pub(crate) const SPENT: QueueId = QueueId(2);
    pub(crate) const KEPT: QueueId = QueueId(3);
}

/// The records of all threads. A number without a record answers with a spare one, so that no
/// look-up can fail; [`Slots::has`] is asked at the door of every policy.
#[derive(Debug)]
pub(crate) struct Slots<'a> {
    list: &'a mut [Slot],
    spare: Slot,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(list: &'a mut [Slot]) -> Slots<'a> {
        Slots { list, spare: Slot::default() }
    }

    pub(crate) fn has(&self, who: WaiterId) -> bool {
        (who.0 as usize) < self.list.len()
    }

    pub(crate) fn at(&self, who: WaiterId) -> &Slot {
        self.list.get(who.0 as usize).unwrap_or(&self.spare)
    }

    pub(crate) fn at_mut(&mut self, who: WaiterId) -> &mut Slot {
        self.list.get_mut(who.0 as usize).unwrap_or(&mut self.spare)
    }

    /// Begins a new thread's record. The caller has taken the old one out of every queue.
    pub(crate) fn start(&mut self, who: WaiterId, priority: i8) {
        *self.at_mut(who) = Slot { priority, ..Slot::default() };
    }
}
