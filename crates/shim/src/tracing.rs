//! The trace of this process, if one is wanted.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use deconvoy_gil::System;
use deconvoy_policy::WaiterId;
use deconvoy_trace::format::FLAG_STOCK;
use deconvoy_trace::notes::Threads;
use deconvoy_trace::record::{About, Recorder, file_bytes};

use crate::sys::Linux;
use crate::threads::{self, Me};
use crate::{config, real, ruby, sys};

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
        runtime: real::py_version()
            .or_else(ruby::description)
            .map_or(b"", |version| version.to_bytes()),
        command: command.get(..length).unwrap_or(&[]),
    };
    // SAFETY: a fresh file of that size, mapped for good, with a name that no other process uses.
    Some(unsafe { Recorder::begin(base, capacity, about) })
}

/// The name of a file, made without an allocator.
pub struct Path {
    text: [u8; 2304],
    length: usize,
    whole: bool,
}

impl Path {
    pub fn new() -> Path {
        Path { text: [0; 2304], length: 0, whole: true }
    }

    pub fn push(&mut self, part: &[u8]) {
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

    pub fn push_number(&mut self, number: u64) {
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

    pub fn bytes(&self) -> Option<&[u8]> {
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

/// How the notes on a lock find what they need of a thread.
pub struct Here;

impl Threads for Here {
    fn record_of(&self, who: WaiterId) -> u16 {
        threads::other(who).map_or(0, |thread| thread.trace())
    }

    fn core(&self) -> Option<u32> {
        Linux.core()
    }
}
