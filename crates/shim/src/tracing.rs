//! The trace of this process, if one is wanted.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use deconvoy_gil::{Observer, System};
use deconvoy_policy::{Action, Event, Nanos, WaiterId};
use deconvoy_trace::format::{FLAG_STOCK, Greeting, Kind};
use deconvoy_trace::record::{About, Recorder, file_bytes};

use crate::sys::Linux;
use crate::threads::{self, Me};
use crate::{config, real, sys};

/// | state | means |
/// |---|---|
/// | `NONE` | not begun |
/// | `BEGINNING` | a thread makes the file |
/// | `ON` | `recorder` is set and stays |
/// | `OFF` | not wanted, or it could not be made |
static STATE: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const BEGINNING: u32 = 1;
const ON: u32 = 2;
const OFF: u32 = 3;

struct Cell(UnsafeCell<Option<Recorder>>);

// SAFETY: written by the one thread that moved `STATE` to `BEGINNING`; read in state `ON` only.
unsafe impl Sync for Cell {}

static RECORDER: Cell = Cell(UnsafeCell::new(None));

pub fn recorder() -> Option<Recorder> {
    // Acquire pairs with the Release in `begin`.
    if STATE.load(Ordering::Acquire) == ON {
        // SAFETY: see `Cell`.
        return unsafe { *RECORDER.0.get() };
    }
    None
}

/// Begins the trace with the first lock that is found.
pub fn begin() {
    if STATE.compare_exchange(NONE, BEGINNING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    let recorder = make();
    // SAFETY: see `Cell`.
    unsafe { *RECORDER.0.get() = recorder };
    STATE.store(if recorder.is_some() { ON } else { OFF }, Ordering::Release);
}

fn make() -> Option<Recorder> {
    let config = config::get();
    if config.trace_folder.is_empty() {
        return None;
    }
    let (bytes, capacity) = file_bytes(config.trace_bytes);
    let pid = sys::pid();
    let unix = sys::unix_ns();
    let mut path = Path::new();
    path.push(config.trace_folder);
    path.push(b"/");
    path.push_number(u64::from(pid));
    path.push(b"-");
    path.push_number(unix / 1_000);
    path.push(b".trace\0");
    let base = sys::map_new_file(path.bytes()?, usize::try_from(bytes).ok()?)?;
    let mut command = [0u8; 2048];
    let length = sys::read_file(b"/proc/self/cmdline\0", &mut command);
    let about = About {
        pid,
        parent_pid: sys::parent_pid(),
        cores: config.cores,
        flags: if config.policy.is_none() { FLAG_STOCK } else { 0 },
        start_ns: Linux.now().0,
        start_unix_ns: unix,
        policy: if config.policy.is_none() { b"" } else { config.policy_text },
        runtime: real::py_version().map_or(b"", |version| version.to_bytes()),
        command: command.get(..length).unwrap_or(&[]),
    };
    // SAFETY: a fresh file of that size, mapped for good, with a name that no other process uses.
    Some(unsafe { Recorder::begin(base, capacity, about) })
}

struct Path {
    text: [u8; 2304],
    length: usize,
    whole: bool,
}

impl Path {
    fn new() -> Path {
        Path { text: [0; 2304], length: 0, whole: true }
    }

    fn push(&mut self, part: &[u8]) {
        let end = self.length.saturating_add(part.len());
        match self.text.get_mut(self.length..end) {
            Some(room) => {
                for (to, from) in room.iter_mut().zip(part) {
                    *to = *from;
                }
                self.length = end;
            }
            None => self.whole = false,
        }
    }

    fn push_number(&mut self, number: u64) {
        let mut digits = [b'0'; 20];
        let mut rest = number;
        let mut first = digits.len();
        for (place, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            first = place;
            if rest == 0 {
                break;
            }
        }
        self.push(digits.get(first..).unwrap_or(&[]));
    }

    fn bytes(&self) -> Option<&[u8]> {
        if self.whole { self.text.get(..self.length) } else { None }
    }
}

pub fn start_thread(me: Me) {
    if let Some(recorder) = recorder() {
        let native_id = me.slot.native_id.load(Ordering::Relaxed);
        let thread = recorder.start_thread(Linux.now().0, native_id);
        me.slot.trace.store(u32::from(thread), Ordering::Relaxed);
    }
}

pub fn name_thread(me: Me, name: &[u8]) {
    if let Some(recorder) = recorder() {
        recorder.set_name(me.trace(), name);
    }
}

pub fn end_thread(me: Me) {
    if let Some(recorder) = recorder() {
        recorder.end_thread(Linux.now().0, me.trace());
    }
}

/// In a forked child: the mapping is the parent's file, which the child does not write.
pub fn forked() {
    STATE.store(NONE, Ordering::Relaxed);
}

/// Writes down what goes in and out of one lock's policy.
pub struct Notes {
    pub recorder: Option<Recorder>,
    pub lock: u8,
    /// When the first drop request for the present hold was made.
    pub asked_ns: Option<u64>,
}

fn trace_number(who: WaiterId) -> u16 {
    threads::other(who).map_or(0, |thread| thread.trace())
}

/// The distance from `now` to a point that is not before it, as an argument of an event.
fn ahead(now: Nanos, at: Nanos) -> u32 {
    u32::try_from(at.since(now).0).unwrap_or(u32::MAX)
}

impl Observer for Notes {
    fn event(&mut self, now: Nanos, event: Event) {
        let Some(recorder) = self.recorder else { return };
        let lock = self.lock;
        match event {
            Event::Start { who, priority } => {
                let greeting = Greeting { priority, number: Some(who.0) };
                recorder.write(now.0, Kind::Greet, trace_number(who), lock, greeting.pack());
            }
            Event::Made { who, by } => {
                recorder.write(now.0, Kind::Made, trace_number(who), lock, by.0);
            }
            Event::Interval { length } => recorder.interval(now.0, 0, lock, length.0),
            Event::Arrive { who } => recorder.arrive(now.0, trace_number(who), lock),
            Event::Acquire { who } => {
                self.asked_ns = None;
                recorder.acquire(now.0, trace_number(who), lock);
            }
            Event::Release { who, asked } => {
                let asked_ns = asked.then(|| self.asked_ns.unwrap_or(now.0));
                recorder.release(now.0, trace_number(who), lock, asked_ns);
            }
            Event::Expire { who } => {
                recorder.write(now.0, Kind::Expire, trace_number(who), lock, 0);
            }
            Event::Leave { who } => {
                recorder.write(now.0, Kind::Leave, trace_number(who), lock, 0);
            }
        }
    }

    fn action(&mut self, now: Nanos, action: Action) {
        let Some(recorder) = self.recorder else { return };
        let lock = self.lock;
        match action {
            Action::Ask { who } => {
                self.asked_ns = self.asked_ns.or(Some(now.0));
                recorder.ask(now.0, trace_number(who), lock);
            }
            Action::Wake { who } => recorder.write(now.0, Kind::Wake, trace_number(who), lock, 0),
            Action::Recall { who } => {
                recorder.write(now.0, Kind::Recall, trace_number(who), lock, 0);
            }
            Action::Grant { who } => {
                recorder.write(now.0, Kind::Grant, trace_number(who), lock, 0);
            }
            Action::Timer { who, at } => {
                recorder.write(now.0, Kind::Timer, trace_number(who), lock, ahead(now, at));
            }
            Action::Linger { who, until } => {
                recorder.write(now.0, Kind::Linger, trace_number(who), lock, ahead(now, until));
            }
        }
    }
}
