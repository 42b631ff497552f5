//! Perfetto's protobuf format, packet by packet, so that a trace of any size streams.
//!
//! The messages are declared by hand with the field numbers of
//! `protos/perfetto/trace/perfetto_trace.proto`; only what is written here.

use std::io::{self, Write};

use prost::Message;

use crate::analyse::command_line;
use crate::format::MAX_LOCKS;
use crate::read::Trace;

use super::timeline::{Doing, Mark, timeline};
use super::{Words, thread_name};

/// `BUILTIN_CLOCK_REALTIME` and `…_MONOTONIC`.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;

/// `SEQ_INCREMENTAL_STATE_CLEARED` and `SEQ_NEEDS_INCREMENTAL_STATE`.
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;

/// `CounterDescriptor.UNIT_COUNT`.
const UNIT_COUNT: i32 = 2;

/// `TrackEvent.Type`.
mod event_type {
    pub const SLICE_BEGIN: i32 = 1;
    pub const SLICE_END: i32 = 2;
    pub const INSTANT: i32 = 3;
    pub const COUNTER: i32 = 4;
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "59")]
    trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
    #[prost(uint32, optional, tag = "2")]
    primary_trace_clock: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Clock {
    #[prost(uint32, optional, tag = "1")]
    clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacketDefaults {
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, repeated, tag = "2")]
    cmdline: Vec<String>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(int32, optional, tag = "3")]
    unit: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(uint64, repeated, tag = "3")]
    category_iids: Vec<u64>,
    #[prost(int32, optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "1")]
    event_categories: Vec<Interned>,
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<Interned>,
}

/// `EventName` and `EventCategory`.
#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

const CATEGORY_IID: u64 = 1;

/// The interned name of what is done at a lock.
#[derive(Clone, Copy)]
enum Name {
    Holds,
    Waits,
    Asks,
}

impl Name {
    const ALL: [Name; 3] = [Name::Holds, Name::Waits, Name::Asks];

    fn iid(self, lock: u8) -> u64 {
        self as u64 + Name::ALL.len() as u64 * u64::from(lock) + 1
    }

    fn text(self, words: &Words, lock: u8) -> String {
        let what = match self {
            Name::Holds => words.holds,
            Name::Waits => words.waits,
            Name::Asks => words.asks,
        };
        // Sub-interpreters have locks of their own.
        if lock == 0 { what.to_owned() } else { format!("{what} {lock}") }
    }
}

struct Writer<'w, W> {
    out: &'w mut W,
    buffer: Vec<u8>,
    start_ns: u64,
    sequence: u32,
}

/// Tracks of different processes in one file have different ids.
fn track(sequence: u32, number: u64) -> u64 {
    (u64::from(sequence) << 32) | number
}

const PROCESS_TRACK: u64 = 1;
const WAITERS_TRACK: u64 = 2;
const FIRST_THREAD_TRACK: u64 = 16;

impl<W: Write> Writer<'_, W> {
    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: self.sequence, ..packet };
        self.buffer.clear();
        // `Trace.packet`, field 1, with its length in front.
        prost::encoding::encode_key(
            1,
            prost::encoding::WireType::LengthDelimited,
            &mut self.buffer,
        );
        packet.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }

    fn thread_track(&self, thread: u16) -> u64 {
        track(self.sequence, FIRST_THREAD_TRACK + u64::from(thread))
    }

    fn head(&mut self, trace: &Trace) -> io::Result<()> {
        let clock = |id, at_ns| Clock { clock_id: Some(id), timestamp: Some(at_ns) };
        self.packet(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![
                    clock(MONOTONIC, trace.about.start_ns),
                    clock(REALTIME, trace.about.start_unix_ns),
                ],
                primary_trace_clock: Some(MONOTONIC),
            }),
            ..TracePacket::default()
        })?;
        let words = Words::of(&trace.about.runtime);
        let names = used_locks(trace).into_iter().flat_map(|lock| {
            Name::ALL.map(|name| Interned {
                iid: Some(name.iid(lock)),
                name: Some(name.text(&words, lock)),
            })
        });
        let category = Interned { iid: Some(CATEGORY_IID), name: Some("gil".to_owned()) };
        self.packet(TracePacket {
            interned_data: Some(InternedData {
                event_categories: vec![category],
                event_names: names.collect(),
            }),
            sequence_flags: Some(STATE_CLEARED),
            trace_packet_defaults: Some(TracePacketDefaults {
                timestamp_clock_id: Some(MONOTONIC),
            }),
            ..TracePacket::default()
        })
    }

    fn tracks(&mut self, trace: &Trace) -> io::Result<()> {
        let about = &trace.about;
        let pid = about.pid.cast_signed();
        let process = track(self.sequence, PROCESS_TRACK);
        let mut tracks = vec![
            TrackDescriptor {
                uuid: Some(process),
                process: Some(ProcessDescriptor {
                    pid: Some(pid),
                    cmdline: about.command.clone(),
                    process_name: Some(command_line(&about.command)),
                }),
                ..TrackDescriptor::default()
            },
            TrackDescriptor {
                uuid: Some(track(self.sequence, WAITERS_TRACK)),
                name: Some(Words::of(&about.runtime).waiters.to_owned()),
                parent_uuid: Some(process),
                counter: Some(CounterDescriptor { unit: Some(UNIT_COUNT) }),
                ..TrackDescriptor::default()
            },
        ];
        tracks.extend(trace.threads.iter().map(|thread| TrackDescriptor {
            uuid: Some(self.thread_track(thread.index)),
            thread: Some(ThreadDescriptor {
                pid: Some(pid),
                tid: Some(i64::from(thread.native_id)),
                thread_name: Some(thread_name(thread)),
            }),
            ..TrackDescriptor::default()
        }));
        for track in tracks {
            self.packet(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })?;
        }
        Ok(())
    }

    fn event(&mut self, at_ns: u64, event: TrackEvent) -> io::Result<()> {
        self.packet(TracePacket {
            timestamp: Some(self.start_ns.saturating_add(at_ns)),
            track_event: Some(event),
            sequence_flags: Some(NEEDS_STATE),
            ..TracePacket::default()
        })
    }

    fn mark(&mut self, at_ns: u64, mark: Mark) -> io::Result<()> {
        let named = |name: Name, lock| TrackEvent {
            category_iids: vec![CATEGORY_IID],
            name_iid: Some(name.iid(lock)),
            ..TrackEvent::default()
        };
        let event = match mark {
            Mark::Begin { thread, lock, doing, from, to } => TrackEvent {
                r#type: Some(event_type::SLICE_BEGIN),
                track_uuid: Some(self.thread_track(thread)),
                flow_ids: to.into_iter().collect(),
                terminating_flow_ids: from.into_iter().collect(),
                ..named(if doing == Doing::Holds { Name::Holds } else { Name::Waits }, lock)
            },
            Mark::End { thread, .. } => TrackEvent {
                r#type: Some(event_type::SLICE_END),
                track_uuid: Some(self.thread_track(thread)),
                ..TrackEvent::default()
            },
            Mark::Ask { thread, lock } => TrackEvent {
                r#type: Some(event_type::INSTANT),
                track_uuid: Some(self.thread_track(thread)),
                ..named(Name::Asks, lock)
            },
            Mark::Waiting { count } => TrackEvent {
                r#type: Some(event_type::COUNTER),
                track_uuid: Some(track(self.sequence, WAITERS_TRACK)),
                counter_value: Some(i64::try_from(count).unwrap_or(i64::MAX)),
                ..TrackEvent::default()
            },
        };
        self.event(at_ns, event)
    }
}

fn used_locks(trace: &Trace) -> Vec<u8> {
    let mut used = vec![false; MAX_LOCKS];
    for event in &trace.events {
        used[usize::from(event.lock)] = true;
    }
    (0..=u8::MAX).filter(|&lock| used[usize::from(lock)]).collect()
}

/// Writes a trace for the Perfetto viewer: a track a thread with what it does, instants for its
/// drop requests, arrows for the hand-offs, and a counter of the threads that wait.
///
/// Traces written one behind the other are one trace of several processes: such is the format.
/// `number` tells them apart; each has another one.
///
/// # Errors
/// Those of `out`.
pub fn perfetto(trace: &Trace, number: u32, out: &mut impl Write) -> io::Result<()> {
    let start_ns = trace.about.start_ns;
    // Sequence 0 is none.
    let sequence = number.saturating_add(1);
    let mut writer = Writer { out, buffer: Vec::new(), start_ns, sequence };
    writer.head(trace)?;
    writer.tracks(trace)?;
    timeline(trace, number, |at_ns, mark| writer.mark(at_ns, mark))
}
