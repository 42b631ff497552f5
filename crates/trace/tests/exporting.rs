//! Exports hold what the trace holds, read by other means than they were written.

mod build;

use std::collections::HashMap;

use build::{INTERVAL, MS, Tape, US};
use deconvoy_trace::export::{TraceEvents, perfetto};
use deconvoy_trace::format::Kind;
use serde_json::Value;

/// Two threads hand the lock to and fro; the last wait goes on at the end.
fn tape() -> Tape {
    let mut tape = Tape::stock();
    let (spin, server) = (tape.thread("spin-0"), tape.thread("ser\"ver"));
    tape.acquire(spin).pass(MS);
    for _ in 0..5 {
        tape.forced_switch(spin, server, INTERVAL);
        tape.arrive(spin).pass(12 * US).release(server).pass(5 * US).acquire(spin).pass(100 * US);
    }
    tape.arrive(server).pass(MS).ask(server);
    tape
}

const HAND_OFFS: usize = 10;

fn trace_events(tapes: &[Tape]) -> Vec<Value> {
    let mut out = Vec::new();
    let mut events = TraceEvents::new(&mut out, build::START_NS);
    for tape in tapes {
        events.add(&tape.trace()).unwrap();
    }
    events.finish().unwrap();
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn trace_events_are_balanced() {
    let events = trace_events(&[tape()]);
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((of("B"), of("E")), (5 * 2 + 1 + 11, 5 * 2 + 1 + 11));
    assert_eq!((of("s"), of("f"), of("i"), of("M")), (HAND_OFFS, HAND_OFFS, 6, 3));
    let name = |event: &&Value| event["name"] == "thread_name";
    let names: Vec<_> = events.iter().filter(name).map(|event| &event["args"]["name"]).collect();
    assert_eq!(names, ["spin-0", "ser\"ver"]);
    // Every arrow starts no later than it ends, and not at the same thread.
    let arrow = |phase: &str| -> HashMap<u64, (f64, u64)> {
        let of_phase = events.iter().filter(|event| event["ph"] == phase);
        of_phase
            .map(|event| {
                let at = (event["ts"].as_f64().unwrap(), event["tid"].as_u64().unwrap());
                (event["id"].as_u64().unwrap(), at)
            })
            .collect()
    };
    let ends = arrow("f");
    for (id, (started, thread)) in arrow("s") {
        let (ended, other) = ends[&id];
        assert!(started <= ended && thread != other);
    }
}

/// A field of a protobuf message: a number, or bytes.
#[derive(Debug)]
enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for place in 0.. {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            break;
        }
    }
    number
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(number.try_into().unwrap()))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (part, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(part)
            }
            wire => panic!("wire type {wire}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn message<'b>(fields: &[(u64, Field<'b>)], number: u64) -> Option<Vec<(u64, Field<'b>)>> {
    fields.iter().find_map(|(field, value)| match value {
        Field::Bytes(bytes) if *field == number => Some(self::fields(bytes)),
        _ => None,
    })
}

fn number(fields: &[(u64, Field<'_>)], wanted: u64) -> Option<u64> {
    fields.iter().find_map(|(field, value)| match value {
        Field::Number(value) if *field == wanted => Some(*value),
        _ => None,
    })
}

/// Field numbers are those of `perfetto_trace.proto`, written down here a second time.
#[test]
fn perfetto_packets_are_balanced() {
    let trace = tape().trace();
    let mut out = Vec::new();
    perfetto(&trace, 0, &mut out).unwrap();
    let (mut tracks, mut flows, mut terminated) = (Vec::new(), Vec::new(), Vec::new());
    let mut open: HashMap<u64, i64> = HashMap::new();
    let (mut asks, mut waiting) = (0, 0);
    for (field, packet) in fields(&out) {
        let (1, Field::Bytes(packet)) = (field, packet) else { panic!("not a packet") };
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1));
        if let Some(track) = message(&packet, 60) {
            tracks.push(number(&track, 1).unwrap());
        }
        let Some(event) = message(&packet, 11) else { continue };
        let at = number(&packet, 8).unwrap();
        assert!((build::START_NS..=build::START_NS + trace.end_ns).contains(&at));
        let track = number(&event, 11).unwrap();
        assert!(tracks.contains(&track));
        match number(&event, 9).unwrap() {
            1 => *open.entry(track).or_default() += 1,
            2 => *open.entry(track).or_default() -= 1,
            3 => asks += 1,
            4 => waiting = number(&event, 30).unwrap(),
            other => panic!("event type {other}"),
        }
        assert!(open.values().all(|&depth| (0..=1).contains(&depth)));
        flows.extend(number(&event, 47));
        terminated.extend(number(&event, 48));
    }
    assert_eq!(tracks.len(), 4);
    assert!(open.values().all(|&depth| depth == 0));
    assert_eq!((asks, waiting), (6, 0));
    assert_eq!(flows.len(), HAND_OFFS);
    assert_eq!(flows, terminated);
}

/// Tracks, arrows and sequences of one process are not those of another.
#[test]
fn two_processes_share_no_number() {
    let trace = tape().trace();
    let numbers = |of: u32| {
        let mut out = Vec::new();
        perfetto(&trace, of, &mut out).unwrap();
        let mut found = Vec::new();
        for (_, packet) in fields(&out) {
            let Field::Bytes(packet) = packet else { panic!("not a packet") };
            let packet = fields(packet);
            found.extend(number(&packet, 10).map(|sequence| ("sequence", sequence)));
            let track = message(&packet, 60).and_then(|track| number(&track, 1));
            found.extend(track.map(|track| ("track", track)));
            let flow = message(&packet, 11).and_then(|event| number(&event, 47));
            found.extend(flow.map(|flow| ("flow", flow)));
        }
        found
    };
    let (one, other) = (numbers(0), numbers(1));
    assert_eq!(one.len(), other.len());
    assert!(one.iter().all(|number| !other.contains(number)));

    let events = trace_events(&[tape(), tape()]);
    let arrows = events.iter().filter(|event| event["ph"] == "s");
    let mut ids: Vec<_> = arrows.map(|event| event["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2 * HAND_OFFS);
}

#[test]
fn what_ends_without_a_release_ends_in_the_export() {
    let mut tape = Tape::stock();
    let (a, b) = (tape.thread("a"), tape.thread("b"));
    tape.acquire(a).pass(MS).arrive(b).pass(MS);
    tape.recorder().write(tape.now, Kind::LockEnd, 0, 0, 0);
    let events = trace_events(&[tape]);
    let ends: Vec<_> = events.iter().filter(|event| event["ph"] == "E").collect();
    assert_eq!(ends.len(), 2);
    assert!(ends.iter().all(|event| event["ts"].as_f64() == Some(2_000.0)));
}
