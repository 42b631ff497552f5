//! Hand-made traces, written by the recorder itself on heap memory.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::offset_of;

use deconvoy_trace::format::{
    EVENT_BYTES, FLAG_STOCK, HEADER_BYTES, Header, RING_AT, THREAD_BYTES,
};
use deconvoy_trace::read::Trace;
use deconvoy_trace::record::{About, Recorder, file_bytes};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const INTERVAL: u64 = 5 * MS;

/// Not zero, so that a mix-up of clocks shows.
pub const START_NS: u64 = 77_000_000_000;

/// Zeroed, page-aligned memory in place of a mapped file.
struct Memory {
    base: *mut u8,
    layout: Layout,
}

impl Memory {
    fn new(bytes: u64) -> Memory {
        let layout = Layout::from_size_align(bytes as usize, 4096).unwrap();
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null());
        Memory { base, layout }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with that size, initialised with zeros; the recorder that writes it is
        // of the same thread and does nothing while the result is in use.
        unsafe { std::slice::from_raw_parts(self.base, self.layout.size()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with that layout; the recorder in front of it is not used any more.
        unsafe { dealloc(self.base, self.layout) };
    }
}

/// A trace being made, with a clock that moves when told to.
pub struct Tape {
    memory: Memory,
    recorder: Recorder,
    pub now: u64,
    pub lock: u8,
}

pub fn stock() -> About<'static> {
    About {
        pid: 4242,
        parent_pid: 1,
        cores: 2,
        flags: FLAG_STOCK,
        start_ns: START_NS,
        start_unix_ns: 1_700_000_000_000_000_000,
        policy: b"",
        runtime: b"3.11.7 (main)",
        command: b"python3\0server.py\0--workers\x001\0",
    }
}

pub fn under(policy: &'static str) -> About<'static> {
    About { flags: 0, policy: policy.as_bytes(), ..stock() }
}

impl Tape {
    pub fn new(about: About<'_>, ring_events: u64) -> Tape {
        let (bytes, capacity) = file_bytes(ring_events * EVENT_BYTES as u64);
        let memory = Memory::new(bytes);
        // SAFETY: fresh, zeroed, page-aligned memory of that size, which outlives the recorder.
        let recorder = unsafe { Recorder::begin(memory.base, capacity, about) };
        Tape { memory, recorder, now: START_NS, lock: 0 }
    }

    pub fn stock() -> Tape {
        let tape = Tape::new(stock(), 1 << 18);
        tape.recorder.interval(tape.now, 0, 0, INTERVAL);
        tape
    }

    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    pub fn thread(&self, name: &str) -> u16 {
        let before = self.recorder.header().threads.load(std::sync::atomic::Ordering::Relaxed);
        let thread = self.recorder.start_thread(self.now, 1000 + before);
        self.recorder.set_name(thread, name.as_bytes());
        thread
    }

    pub fn pass(&mut self, ns: u64) -> &mut Tape {
        self.now += ns;
        self
    }

    pub fn arrive(&mut self, thread: u16) -> &mut Tape {
        self.recorder.arrive(self.now, thread, self.lock);
        self
    }

    pub fn ask(&mut self, thread: u16) -> &mut Tape {
        self.recorder.ask(self.now, thread, self.lock);
        self
    }

    pub fn acquire(&mut self, thread: u16) -> &mut Tape {
        self.recorder.acquire(self.now, thread, self.lock, None);
        self
    }

    pub fn release(&mut self, thread: u16) -> &mut Tape {
        self.recorder.release(self.now, thread, self.lock, None);
        self
    }

    /// A release on a request that was made at `asked`.
    pub fn drop_on_request(&mut self, thread: u16, asked: u64) -> &mut Tape {
        self.recorder.release(self.now, thread, self.lock, Some(asked));
        self
    }

    /// `from` computes and has the lock; `to` waits one interval, asks, and has it.
    pub fn forced_switch(&mut self, from: u16, to: u16, interval: u64) -> &mut Tape {
        self.arrive(to).pass(interval).ask(to);
        let asked = self.now;
        self.pass(2 * US).drop_on_request(from, asked).pass(10 * US).acquire(to)
    }

    pub fn trace(&self) -> Trace {
        Trace::from_bytes(self.memory.bytes()).unwrap()
    }

    /// The file, without the part of the thread table that is not used.
    pub fn bytes(&self) -> Vec<u8> {
        let all = self.memory.bytes();
        let header = self.recorder.header();
        let threads = header.threads.load(std::sync::atomic::Ordering::Relaxed);
        let ring_at = HEADER_BYTES + threads as usize * THREAD_BYTES;
        let mut bytes = all[..ring_at].to_vec();
        bytes.extend_from_slice(&all[RING_AT..]);
        put(&mut bytes, offset_of!(Header, thread_capacity), &threads.to_le_bytes());
        put(&mut bytes, offset_of!(Header, ring_at), &(ring_at as u64).to_le_bytes());
        bytes
    }
}

pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
