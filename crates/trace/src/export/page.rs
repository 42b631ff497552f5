//! What each thread does from when to when, packed for a page that draws it.
//!
//! All numbers are LEB128. The count of threads; for each its record's number, the count of its
//! changes, and each change: the nanoseconds since the one before, and what it does from then on.
//! Then the count of acquisitions, in order, and each: the nanoseconds since the one before, and whose
//! it is; then the drop requests in the same way.
//!
//! | it | number |
//! |---|---|
//! | is elsewhere | 0 |
//! | waits | 1 |
//! | holds the lock, which it took on core `c` | 2 + 4 (`c` + 1); `c` not known: 2 |

use crate::format::Kind;
use crate::read::Trace;

const ELSEWHERE: u64 = 0;
const WAITS: u64 = 1;
const HOLDS: u64 = 2;

fn push(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// One thread's changes so far.
#[derive(Default)]
struct Row {
    bytes: Vec<u8>,
    changes: u64,
    last_ns: u64,
    does: u64,
}

impl Row {
    fn change(&mut self, at_ns: u64, does: u64) {
        if does == self.does {
            return;
        }
        push(&mut self.bytes, at_ns.saturating_sub(self.last_ns));
        push(&mut self.bytes, does);
        self.last_ns = self.last_ns.max(at_ns);
        self.changes += 1;
        self.does = does;
    }
}

/// Moments of all threads, in order.
#[derive(Default)]
struct Moments {
    bytes: Vec<u8>,
    count: u64,
    last_ns: u64,
}

impl Moments {
    fn add(&mut self, at_ns: u64, thread: u16) {
        push(&mut self.bytes, at_ns.saturating_sub(self.last_ns));
        push(&mut self.bytes, u64::from(thread));
        self.last_ns = self.last_ns.max(at_ns);
        self.count += 1;
    }

    fn pack(&self, to: &mut Vec<u8>) {
        push(to, self.count);
        to.extend_from_slice(&self.bytes);
    }
}

/// Packs the timeline of a trace.
pub fn page(trace: &Trace) -> Vec<u8> {
    let mut rows: Vec<Row> = Vec::new();
    let (mut acquisitions, mut asks) = (Moments::default(), Moments::default());
    for event in &trace.events {
        let thread = usize::from(event.thread);
        if rows.len() <= thread {
            rows.resize_with(thread + 1, Row::default);
        }
        let does = match event.kind {
            Kind::Arrive => WAITS,
            Kind::Acquire => {
                acquisitions.add(event.at_ns, event.thread);
                HOLDS + 4 * u64::from(event.argument)
            }
            Kind::Release | Kind::Start | Kind::End | Kind::Leave => ELSEWHERE,
            Kind::Ask => {
                asks.add(event.at_ns, event.thread);
                continue;
            }
            _ => continue,
        };
        rows[thread].change(event.at_ns, does);
    }
    let mut packed = Vec::new();
    push(&mut packed, rows.iter().filter(|row| row.changes > 0).count() as u64);
    for (number, row) in rows.iter().enumerate().filter(|(_, row)| row.changes > 0) {
        push(&mut packed, number as u64);
        push(&mut packed, row.changes);
        packed.extend_from_slice(&row.bytes);
    }
    acquisitions.pack(&mut packed);
    asks.pack(&mut packed);
    packed
}
