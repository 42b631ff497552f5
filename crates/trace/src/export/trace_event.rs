//! Chrome's trace event format, an array of JSON objects, one a line.
//!
//! Source: "Trace Event Format",
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use std::io::{self, Write};

use serde::Serialize;

use crate::analyse::command_line;
use crate::read::Trace;

use super::timeline::{Doing, Mark, timeline};
use super::{Words, thread_name};

/// One event; what it has not is left out.
#[derive(Serialize, Default)]
struct Event<'e> {
    ph: &'e str,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'e str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'e str,
    /// Of an instant: its scope.
    #[serde(skip_serializing_if = "str::is_empty")]
    s: &'e str,
    /// Of an arrow: where it ends, in the span that encloses it.
    #[serde(skip_serializing_if = "str::is_empty")]
    bp: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    args: Args<'e>,
}

#[derive(Serialize, Default)]
struct Args<'e> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<u8>,
}

impl Args<'_> {
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.waiting.is_none() && self.lock.is_none()
    }
}

struct Writer<'w, W> {
    out: &'w mut W,
    pid: u32,
    words: Words,
    /// What threads are called in the file, by their number in the trace.
    ids: Vec<u32>,
    /// Added to each time, in nanoseconds.
    later_ns: u64,
    is_first: bool,
}

impl<W: Write> Writer<'_, W> {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        self.out.write_all(if self.is_first { b"[\n" } else { b",\n" })?;
        self.is_first = false;
        let event = Event { pid: self.pid, ..event };
        serde_json::to_writer(&mut *self.out, &event).map_err(io::Error::from)
    }

    fn names(&mut self, trace: &Trace) -> io::Result<()> {
        let command = command_line(&trace.about.command);
        let args = Args { name: Some(&command), ..Args::default() };
        self.event(Event { ph: "M", name: "process_name", args, ..Event::default() })?;
        for thread in &trace.threads {
            let name = thread_name(thread);
            let args = Args { name: Some(&name), ..Args::default() };
            let tid = self.id(thread.index);
            self.event(Event { ph: "M", name: "thread_name", tid, args, ..Event::default() })?;
        }
        Ok(())
    }

    fn id(&self, thread: u16) -> Option<u32> {
        self.ids.get(usize::from(thread)).copied()
    }

    fn arrow(&mut self, ph: &str, ts: Option<f64>, thread: u16, id: Option<u64>) -> io::Result<()> {
        if id.is_none() {
            return Ok(());
        }
        let (tid, bp) = (self.id(thread), if ph == "f" { "e" } else { "" });
        self.event(Event { ph, ts, tid, name: "hand-off", cat: "gil", id, bp, ..Event::default() })
    }

    fn mark(&mut self, at_ns: u64, mark: Mark) -> io::Result<()> {
        // The format counts in microseconds.
        let ts = Some(at_ns.saturating_add(self.later_ns) as f64 / 1e3);
        let args = |lock: u8| Args { lock: (lock != 0).then_some(lock), ..Args::default() };
        match mark {
            Mark::Begin { thread, lock, doing, from, .. } => {
                let (tid, args) = (self.id(thread), args(lock));
                let name = match doing {
                    Doing::Holds => self.words.holds,
                    Doing::Waits => self.words.waits,
                };
                let begin = Event { ph: "B", ts, tid, name, cat: "gil", args, ..Event::default() };
                self.event(begin)?;
                self.arrow("f", ts, thread, from)
            }
            Mark::End { thread, to } => {
                // Within the span that it starts from, so before its end.
                self.arrow("s", ts, thread, to)?;
                let tid = self.id(thread);
                self.event(Event { ph: "E", ts, tid, ..Event::default() })
            }
            Mark::Ask { thread, lock } => {
                let (tid, name, args) = (self.id(thread), self.words.asks, args(lock));
                let ask = Event { ph: "i", s: "t", ts, tid, name, ..Event::default() };
                self.event(Event { cat: "gil", args, ..ask })
            }
            Mark::Waiting { count } => {
                let args = Args { waiting: Some(count), ..Args::default() };
                let name = self.words.waiters;
                self.event(Event { ph: "C", ts, name, args, ..Event::default() })
            }
        }
    }
}

/// Writes traces, one a process, into one array of trace events.
pub struct TraceEvents<W> {
    out: W,
    written: u32,
    /// Where the times begin.
    start_ns: u64,
}

impl<W: Write> TraceEvents<W> {
    /// `start_ns`: when the first of the processes began, by the clock of `AboutProcess::start_ns`.
    pub fn new(out: W, start_ns: u64) -> Self {
        TraceEvents { out, written: 0, start_ns }
    }

    /// Adds a trace.
    ///
    /// # Errors
    /// Those of the output.
    pub fn add(&mut self, trace: &Trace) -> io::Result<()> {
        let mut ids: Vec<u32> = (0..=u32::from(u16::MAX)).collect();
        for thread in trace.threads.iter().filter(|thread| thread.native_id != 0) {
            if let Some(id) = ids.get_mut(usize::from(thread.index)) {
                *id = thread.native_id;
            }
        }
        let later_ns = trace.about.start_ns.saturating_sub(self.start_ns);
        let is_first = self.written == 0;
        let pid = trace.about.pid;
        let words = Words::of(&trace.about.runtime);
        let mut writer = Writer { out: &mut self.out, pid, words, ids, later_ns, is_first };
        writer.names(trace)?;
        timeline(trace, self.written, |at_ns, mark| writer.mark(at_ns, mark))?;
        self.written += 1;
        Ok(())
    }

    /// Ends the array.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(if self.written == 0 { b"[]\n" } else { b"\n]\n" })?;
        self.out.flush()
    }
}
