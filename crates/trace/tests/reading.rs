//! What the recorder writes is what the reader reads, from whole files, torn ones and cut ones.

mod build;

use std::mem::offset_of;

use build::{MS, START_NS, Tape, US, put, stock};
use deconvoy_trace::analyse::report;
use deconvoy_trace::format::{EVENT_BYTES, Event, HEADER_BYTES, Header, Kind, state};
use deconvoy_trace::read::{ReadError, Trace};
use proptest::prelude::*;

const RING: usize = 256;

fn any_event() -> impl Strategy<Value = Event> {
    (0u64..1 << 50, 0..Kind::ALL.len(), any::<u16>(), any::<u8>(), any::<u32>()).prop_map(
        |(at_ns, kind, thread, lock, argument)| Event {
            at_ns,
            kind: Kind::ALL[kind],
            thread,
            lock,
            argument,
        },
    )
}

/// A thread's next step: which thread, and how long after the last one.
type Step = (usize, u64);

/// Lets four threads use a lock as they must: one holder at a time, and whoever finds it held
/// waits.
fn play(steps: &[Step], ring: u64) -> Tape {
    let mut tape = Tape::new(stock(), ring);
    let threads: Vec<u16> = ["a", "b", "c", "d"].map(|name| tape.thread(name)).into();
    let mut holder = None;
    let mut asked = None;
    for &(who, pass) in steps {
        tape.pass(pass);
        let me = threads[who];
        match holder {
            None => {
                tape.acquire(me);
                (holder, asked) = (Some(me), None);
            }
            Some(other) if other == me => {
                match asked {
                    Some(asked) => tape.drop_on_request(me, asked),
                    None => tape.release(me),
                };
                holder = None;
            }
            Some(_) => {
                tape.arrive(me);
                if pass.is_multiple_of(3) {
                    tape.ask(me);
                    asked = asked.or(Some(tape.now));
                }
            }
        }
    }
    tape
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0usize..4, 0u64..20 * MS), 0..600)
}

/// Holding and waiting of a thread, from the events alone.
fn sums(trace: &Trace, thread: u16) -> (u64, u64) {
    let (mut holding, mut waiting) = (0, 0);
    let mut doing: Option<(Kind, u64)> = None;
    let mut end = |doing: Option<(Kind, u64)>, at_ns: u64| match doing {
        Some((Kind::Arrive, since)) => waiting += at_ns - since,
        Some((Kind::Acquire, since)) => holding += at_ns - since,
        _ => {}
    };
    for event in trace.events.iter().filter(|event| event.thread == thread) {
        match (event.kind, doing) {
            (Kind::Arrive, Some((Kind::Arrive, _))) => {}
            (Kind::Arrive | Kind::Acquire | Kind::Release, _) => {
                end(doing, event.at_ns);
                doing = Some((event.kind, event.at_ns));
            }
            _ => {}
        }
    }
    end(doing, trace.end_ns);
    (holding, waiting)
}

proptest! {
    #[test]
    fn what_is_written_is_read(events in prop::collection::vec(any_event(), 0..3 * RING)) {
        let tape = Tape::new(stock(), RING as u64);
        for event in &events {
            let Event { at_ns, kind, thread, lock, argument } = *event;
            tape.recorder().write(START_NS + at_ns, kind, thread, lock, argument);
        }
        let trace = tape.trace();
        let lost = events.len().saturating_sub(RING);
        prop_assert_eq!(&trace.events, &events[lost..]);
        prop_assert_eq!(trace.overwritten, lost as u64);
        prop_assert_eq!((trace.torn, trace.truncated), (0, false));
        prop_assert_eq!(Trace::from_bytes(&tape.bytes()).unwrap(), trace);
    }

    #[test]
    fn sums_agree_with_events(steps in steps()) {
        let trace = play(&steps, 1 << 12).trace();
        let report = report(&trace);
        prop_assert!(trace.is_whole());
        for thread in &trace.threads {
            prop_assert_eq!(sums(&trace, thread.index), (thread.holding_ns, thread.waiting_ns));
            let count = |kind| trace.events.iter().filter(|event| {
                event.thread == thread.index && event.kind == kind
            }).count() as u64;
            prop_assert_eq!(thread.acquires, count(Kind::Acquire));
            prop_assert_eq!(thread.asks, count(Kind::Ask));
            prop_assert_eq!(
                thread.life_ns(),
                thread.holding_ns + thread.waiting_ns + thread.elsewhere_ns
            );
        }
        // All waiting is accounted for.
        let waiting: u64 = trace.threads.iter().map(|thread| thread.waiting_ns).sum();
        let coverage = &report.coverage;
        prop_assert_eq!(
            waiting,
            coverage.behind_holders_ns + coverage.lock_free_ns + coverage.unattributed_ns
        );
        let pairs: u64 = report.pairs.iter().map(|pair| pair.total_ns).sum();
        prop_assert_eq!(pairs, coverage.behind_holders_ns);
        for thread in &report.threads {
            for quantiles in [thread.wait, thread.hold] {
                prop_assert!(quantiles.exact);
                prop_assert!(quantiles.p50_ns <= quantiles.p99_ns);
                prop_assert!(quantiles.p99_ns <= quantiles.max_ns);
            }
        }
    }

    #[test]
    fn a_cut_file_loses_only_its_end(steps in steps(), cut in 0.0f64..1.0) {
        let tape = play(&steps, RING as u64);
        let (whole, bytes) = (tape.trace(), tape.bytes());
        let ring_at = bytes.len() - RING * EVENT_BYTES;
        let length = (bytes.len() as f64 * cut) as usize;
        match Trace::from_bytes(&bytes[..length]) {
            Ok(trace) => {
                prop_assert!(length >= ring_at);
                prop_assert_eq!(trace.threads.len(), whole.threads.len());
                prop_assert_eq!(trace.torn, 0);
                if whole.overwritten == 0 {
                    let left = trace.events.len();
                    prop_assert_eq!(&trace.events, &whole.events[..left]);
                    prop_assert_eq!(trace.truncated, left < whole.events.len());
                }
                report(&trace);
            }
            Err(error) => {
                prop_assert!(length < ring_at, "{error}");
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}

#[test]
fn a_state_that_goes_on_is_counted() {
    let mut tape = Tape::new(stock(), 256);
    let (a, b) = (tape.thread("a"), tape.thread("b"));
    tape.acquire(a).pass(MS).arrive(b).pass(MS);
    // Something that happens, so that the trace goes on till here.
    tape.recorder().write(tape.now, Kind::Ask, b, 0, 0);
    let trace = tape.trace();
    let (a, b) = (trace.thread(a).unwrap(), trace.thread(b).unwrap());
    assert_eq!((a.state, a.holding_ns, a.longest_hold_ns), (state::HOLDING, 2 * MS, 2 * MS));
    assert_eq!((b.state, b.waiting_ns, b.elsewhere_ns), (state::WAITING, MS, MS));
    assert_eq!(trace.end_ns, 2 * MS);
}

#[test]
fn a_torn_event_is_dropped() {
    let mut tape = Tape::new(stock(), 256);
    let a = tape.thread("a");
    for _ in 0..4 {
        tape.pass(US).acquire(a).pass(US).release(a);
    }
    let mut bytes = tape.bytes();
    let whole = tape.trace();
    let last = bytes.len() - RING * EVENT_BYTES + (whole.events.len() - 1) * EVENT_BYTES;
    put(&mut bytes, last + 8, &[0; 8]);
    let trace = Trace::from_bytes(&bytes).unwrap();
    assert_eq!(trace.torn, 1);
    assert_eq!(trace.events, whole.events[..whole.events.len() - 1]);
    assert!(!trace.is_whole());
}

#[test]
fn a_record_that_is_used_again_is_read() {
    let tape = Tape::new(stock(), 256);
    let first = tape.thread("first");
    tape.recorder().end_thread(tape.now + US, first);
    let trace = tape.trace();
    let thread = trace.thread(first).unwrap();
    assert_eq!((thread.state, thread.end_ns, thread.name.as_str()), (state::ENDED, US, "first"));
}

#[test]
fn the_process_is_read() {
    let about = Tape::new(stock(), 256).trace().about;
    assert_eq!((about.pid, about.parent_pid, about.cores, about.stock), (4242, 1, 2, true));
    assert_eq!(about.command, ["python3", "server.py", "--workers", "1"]);
    assert_eq!(about.runtime, "3.11.7 (main)");
    assert_eq!(about.start_ns, START_NS);
}

/// What is said of a file in which one number of the header is another.
fn said_of<const N: usize>(at: usize, value: [u8; N]) -> String {
    let mut bytes = Tape::new(stock(), 256).bytes();
    put(&mut bytes, at, &value);
    Trace::from_bytes(&bytes).unwrap_err().to_string()
}

#[test]
fn what_is_no_trace_is_refused_in_one_clear_line() {
    assert!(matches!(Trace::from_bytes(&[]), Err(ReadError::Empty)));
    assert!(matches!(Trace::from_bytes(&[0; 4096]), Err(ReadError::Empty)));
    assert_eq!(Trace::from_bytes(b"GIF89a").unwrap_err().to_string(), "not a deconvoy trace");
    let bytes = Tape::new(stock(), 256).bytes();
    let short = Trace::from_bytes(&bytes[..100]).unwrap_err().to_string();
    assert_eq!(short, "cut short: 100 bytes, and its events begin at byte 4096");
    let short = Trace::from_bytes(&bytes[..HEADER_BYTES]).unwrap_err().to_string();
    assert!(short.starts_with("cut short: 4096 bytes"), "{short}");
    assert_eq!(
        said_of(offset_of!(Header, version), 9u32.to_le_bytes()),
        "written by a newer deconvoy (format 9; this one reads up to 1): update deconvoy"
    );
    for capacity in [0u64, 3, 1 << 60, u64::MAX] {
        let said = said_of(offset_of!(Header, ring_capacity), capacity.to_le_bytes());
        assert_eq!(said, format!("damaged: it says that its ring holds {capacity} events"));
    }
    assert_eq!(
        said_of(offset_of!(Header, thread_bytes), 64u32.to_le_bytes()),
        "damaged: it says that a thread takes 64 bytes, not 1280"
    );
    assert_eq!(
        said_of(offset_of!(Header, thread_capacity), 0u32.to_le_bytes()),
        "damaged: it says that its table holds 0 threads"
    );
    assert_eq!(
        said_of(offset_of!(Header, ring_at), 4096u64.to_le_bytes()),
        "damaged: it says that its events begin at byte 4096, which is before the end of the \
         thread table at byte 5376"
    );
}
