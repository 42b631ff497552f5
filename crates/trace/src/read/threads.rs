//! The table of threads.

use std::mem::offset_of;

use crate::format::{HEADER_BYTES, OTHERS, THREAD_BYTES, Thread, state};
use crate::histogram::BUCKETS;

use super::Bytes;

/// One thread's sums over the whole run, with the state that it was in at the end counted up to
/// the last event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadSums {
    /// The number that events give it.
    pub index: u16,
    pub native_id: u32,
    /// Empty when it has none.
    pub name: String,
    /// One of [`state`].
    pub state: u32,
    /// Since the start of the trace.
    pub start_ns: u64,
    /// Since the start of the trace; of a thread that is alive, the last event of the trace.
    pub end_ns: u64,
    pub holding_ns: u64,
    pub waiting_ns: u64,
    /// Its life less the two above. 0 for the record that sums up many threads.
    pub elsewhere_ns: u64,
    pub acquires: u64,
    pub waits: u64,
    pub switches: u64,
    pub forced: u64,
    pub asks: u64,
    pub longest_wait_ns: u64,
    pub longest_hold_ns: u64,
    pub longest_answer_ns: u64,
    pub wait_counts: [u32; BUCKETS],
    pub hold_counts: [u32; BUCKETS],
}

impl ThreadSums {
    pub fn life_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// One record of the table, with the state that it is in counted up to `end_ns`.
pub(super) fn thread(bytes: Bytes<'_>, index: u16, end_ns: u64) -> ThreadSums {
    let at = HEADER_BYTES + usize::from(index) * THREAD_BYTES;
    let number = |offset: usize| bytes.u64(at + offset);
    let counts = |offset: usize| {
        std::array::from_fn(|place| bytes.u32(at + offset + place * size_of::<u32>()))
    };
    let mut sums = ThreadSums {
        index,
        native_id: bytes.u32(at + offset_of!(Thread, native_id)),
        name: bytes.text(at + offset_of!(Thread, name), 64),
        state: bytes.u32(at + offset_of!(Thread, state)),
        start_ns: number(offset_of!(Thread, start_ns)),
        end_ns: number(offset_of!(Thread, end_ns)),
        holding_ns: number(offset_of!(Thread, holding_ns)),
        waiting_ns: number(offset_of!(Thread, waiting_ns)),
        elsewhere_ns: 0,
        acquires: number(offset_of!(Thread, acquires)),
        waits: number(offset_of!(Thread, waits)),
        switches: number(offset_of!(Thread, switches)),
        forced: number(offset_of!(Thread, forced)),
        asks: number(offset_of!(Thread, asks)),
        longest_wait_ns: number(offset_of!(Thread, longest_wait_ns)),
        longest_hold_ns: number(offset_of!(Thread, longest_hold_ns)),
        longest_answer_ns: number(offset_of!(Thread, longest_answer_ns)),
        wait_counts: counts(offset_of!(Thread, wait_counts)),
        hold_counts: counts(offset_of!(Thread, hold_counts)),
    };
    sums.close(number(offset_of!(Thread, since_ns)), end_ns);
    sums
}

impl ThreadSums {
    /// Counts the state that the thread is in up to `end_ns`, the end of the trace.
    fn close(&mut self, since_ns: u64, end_ns: u64) {
        if self.index == OTHERS {
            return;
        }
        if self.state != state::ENDED || self.end_ns == 0 {
            self.end_ns = end_ns.max(self.start_ns);
            let length = end_ns.saturating_sub(since_ns);
            let (sum, longest) = match self.state {
                state::HOLDING => (&mut self.holding_ns, &mut self.longest_hold_ns),
                state::WAITING => (&mut self.waiting_ns, &mut self.longest_wait_ns),
                _ => (&mut 0, &mut 0),
            };
            *sum = sum.saturating_add(length);
            *longest = length.max(*longest);
        }
        let busy = self.holding_ns.saturating_add(self.waiting_ns);
        self.elsewhere_ns = self.life_ns().saturating_sub(busy);
    }
}
