//! Damaged files: whatever is in them, they are read or refused, never with a panic, and never
//! with more memory than a few times their size.
//!
//! `PROPTEST_CASES=100000 cargo test -p deconvoy-trace --test fuzz --release` looks longer.

mod build;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::offset_of;

use build::{INTERVAL, MS, Tape, US, put, stock, under};
use deconvoy_trace::export::{TraceEvents, perfetto};
use deconvoy_trace::format::{EVENT_BYTES, Greeting, Header, Kind};
use deconvoy_trace::read::Trace;
use deconvoy_trace::{analyse, replay};
use proptest::prelude::*;

/// Counts what the calling thread has allocated.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get().saturating_add(layout.size()));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A file in which everything occurs; `rounds` enough, and its ring goes round.
fn valid(rounds: u32, policy: &'static str) -> Vec<u8> {
    let about = if policy == "stock" { stock() } else { under(policy) };
    let mut tape = Tape::new(about, 256);
    tape.recorder().interval(tape.now, 0, 0, INTERVAL);
    tape.recorder().write(tape.now, Kind::LockStart, 0, 0, 0);
    let threads = [tape.thread("spin-0"), tape.thread("server"), tape.thread("regex")];
    for (number, &thread) in threads.iter().enumerate() {
        let greeting = Greeting { priority: 0, number: Some(number as u32) };
        tape.recorder().write(tape.now, Kind::Greet, thread, 0, greeting.pack());
    }
    tape.acquire(threads[0]);
    for round in 0..rounds as usize {
        let (from, to) = (threads[round % 3], threads[(round + 1) % 3]);
        let wait = if round.is_multiple_of(7) { 90 * MS } else { INTERVAL };
        tape.forced_switch(from, to, wait).pass(10 * US);
        let policys = [Kind::Wake, Kind::Recall, Kind::Timer, Kind::Linger, Kind::Grant];
        for kind in policys.into_iter().chain([Kind::Made, Kind::Woken, Kind::Expire]) {
            tape.recorder().write(tape.now, kind, to, 0, 5);
        }
    }
    // Of one kind, some of them without an event.
    for number in 0..12 {
        let short_lived = tape.thread(&format!("job-{number}"));
        if number % 2 == 0 {
            tape.arrive(short_lived).pass(US);
        }
        tape.recorder().end_thread(tape.now, short_lived);
    }
    tape.bytes()
}

#[derive(Clone, Debug)]
enum Damage {
    /// A bit of any byte.
    Flip(prop::sample::Index, u8),
    /// A byte of the header's numbers, or of the thread table.
    Head(usize, u8),
    /// A number that is on an edge, in place of one of the header's.
    Number(usize, u64),
    /// Any event in place of another.
    Event(prop::sample::Index, u64, u64),
    /// One event in place of another one.
    Copy(prop::sample::Index, prop::sample::Index),
    Cut(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let numbers = [
        offset_of!(Header, version),
        offset_of!(Header, thread_capacity),
        offset_of!(Header, ring_at),
        offset_of!(Header, ring_capacity),
        offset_of!(Header, cores),
        offset_of!(Header, start_ns),
        offset_of!(Header, interval_ns),
        offset_of!(Header, threads),
        offset_of!(Header, head),
    ];
    let edge = prop_oneof![
        Just(0u64),
        Just(u64::MAX),
        (0u32..64).prop_map(|bit| 1 << bit),
        (0u32..64).prop_map(|bit| (1 << bit) - 1),
        any::<u64>(),
    ];
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        2 => (0usize..10_000, any::<u8>()).prop_map(|(at, byte)| Damage::Head(at, byte)),
        2 => (prop::sample::select(numbers.to_vec()), edge)
            .prop_map(|(at, number)| Damage::Number(at, number)),
        4 => (any::<prop::sample::Index>(), any::<u64>(), any::<u64>())
            .prop_map(|(at, first, second)| Damage::Event(at, first, second)),
        4 => any::<(prop::sample::Index, prop::sample::Index)>()
            .prop_map(|(from, to)| Damage::Copy(from, to)),
        1 => any::<prop::sample::Index>().prop_map(Damage::Cut),
    ]
}

impl Damage {
    fn do_to(&self, bytes: &mut Vec<u8>) {
        let events = 256.min(bytes.len() / EVENT_BYTES);
        if events == 0 {
            return;
        }
        let event = |bytes: &[u8], index: &prop::sample::Index| {
            bytes.len() - (index.index(events) + 1) * EVENT_BYTES
        };
        match self {
            Damage::Flip(at, bit) => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Damage::Head(at, byte) if *at < bytes.len() => bytes[*at] = *byte,
            Damage::Number(at, number) if at + 8 <= bytes.len() => {
                put(bytes, *at, &number.to_le_bytes());
            }
            Damage::Event(at, first, second) => {
                // A kind that there is, and the lap that it is read on.
                let first = (first & !0xff) | ((first & 0xff) % 39);
                let second = (second & !0xff00_0000) | (1 << 24);
                let at = event(bytes, at);
                put(bytes, at, &first.to_le_bytes());
                put(bytes, at + 8, &second.to_le_bytes());
            }
            Damage::Copy(from, to) => {
                let from = event(bytes, from);
                let to = event(bytes, to);
                bytes.copy_within(from..from + EVENT_BYTES, to);
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Head(..) | Damage::Number(..) => {}
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_file_is_read_or_refused(
        rounds in prop_oneof![0u32..8, Just(60)],
        policy in prop::sample::select(vec!["adaptive", "priority:sever=5,sp-*=1", "stock"]),
        damages in prop::collection::vec(damage(), 0..12),
    ) {
        let mut bytes = valid(rounds, policy);
        for damage in &damages {
            damage.do_to(&mut bytes);
        }
        let before = ALLOCATED.get();
        let trace = Trace::from_bytes(&bytes);
        let allocated = ALLOCATED.get() - before;
        prop_assert!(allocated <= 4 * bytes.len() + (64 << 10), "{allocated} for {}", bytes.len());
        match trace {
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
            Ok(trace) => {
                let report = analyse::report(&trace);
                prop_assert!(!report.findings.is_empty());
                serde_json::to_string(&report).unwrap();
                perfetto(&trace, 0, &mut std::io::sink()).unwrap();
                let mut json = Vec::new();
                let mut events = TraceEvents::new(&mut json, trace.about.start_ns);
                events.add(&trace).unwrap();
                events.finish().unwrap();
                serde_json::from_slice::<serde_json::Value>(&json).unwrap();
                let _ = replay::check(&trace);
            }
        }
    }
}
