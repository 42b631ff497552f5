//! The recorder: events and sums into a mapped file, without allocation or system call.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::format::{
    EVENT_BYTES, Event, HEADER_BYTES, Header, Kind, MAGIC, OTHERS, RING_AT, THREAD_BYTES,
    THREAD_CAPACITY, Thread, VERSION, lap, state,
};
use crate::histogram;

const RELAXED: Ordering = Ordering::Relaxed;

/// A mapped trace file being written. Copies are handles to the same file.
#[derive(Clone, Copy, Debug)]
pub struct Recorder {
    base: *mut u8,
    ring_capacity: u64,
    start_ns: u64,
}

// SAFETY: the mapping is never unmapped (see `Recorder::begin`), and all of it that changes after
// `begin` is reached through atomics.
unsafe impl Send for Recorder {}
// SAFETY: as above.
unsafe impl Sync for Recorder {}

/// What a trace says of its process.
#[derive(Clone, Copy, Debug)]
pub struct About<'t> {
    pub pid: u32,
    pub parent_pid: u32,
    pub cores: u32,
    pub flags: u32,
    pub start_ns: u64,
    pub start_unix_ns: u64,
    pub policy: &'t [u8],
    pub runtime: &'t [u8],
    /// The arguments, each ended by a zero byte.
    pub command: &'t [u8],
}

/// The size of a file whose ring holds at most `bytes`, and the events it holds: the largest power
/// of two that fits, at least one page of them.
pub fn file_bytes(ring_bytes: u64) -> (u64, u64) {
    let wanted = (ring_bytes / EVENT_BYTES as u64).max(256);
    let capacity = 1 << wanted.ilog2();
    (RING_AT as u64 + capacity * EVENT_BYTES as u64, capacity)
}

fn fill(place: &mut [u8], text: &[u8]) {
    for (to, from) in place.iter_mut().zip(text) {
        *to = *from;
    }
}

impl Recorder {
    /// Begins a trace in fresh, zeroed memory.
    ///
    /// # Safety
    /// `base` is page-aligned and points to `file_bytes(…).0` writable bytes for that capacity,
    /// all zero, that stay mapped while the process lives and that nobody else writes.
    pub unsafe fn begin(base: *mut u8, ring_capacity: u64, about: About<'_>) -> Recorder {
        // SAFETY: the header is the first page of the memory; all-zero bytes are a valid header;
        // nobody else has it yet.
        let header = unsafe { &mut *base.cast::<Header>() };
        header.version = VERSION;
        header.header_bytes = HEADER_BYTES as u32;
        header.thread_bytes = THREAD_BYTES as u32;
        header.thread_capacity = THREAD_CAPACITY as u32;
        header.ring_at = RING_AT as u64;
        header.ring_capacity = ring_capacity;
        header.pid = about.pid;
        header.parent_pid = about.parent_pid;
        header.cores = about.cores;
        header.flags = about.flags;
        header.start_ns = about.start_ns;
        header.start_unix_ns = about.start_unix_ns;
        header.threads = AtomicU32::new(u32::from(OTHERS) + 1);
        fill(&mut header.policy, about.policy);
        fill(&mut header.runtime, about.runtime);
        fill(&mut header.command, about.command);
        // Last, so that a file with the magic has a header.
        header.magic = MAGIC;
        Recorder { base, ring_capacity, start_ns: about.start_ns }
    }

    pub fn header(&self) -> &Header {
        // SAFETY: written in `begin`; what changes since is atomic.
        unsafe { &*self.base.cast::<Header>() }
    }

    fn thread(&self, thread: u16) -> &Thread {
        let place = (thread as usize).min(THREAD_CAPACITY - 1);
        // SAFETY: the place lies within the table; all of a record is atomic but the name, which
        // is read and written through pointers.
        unsafe { &*self.base.add(HEADER_BYTES + place * THREAD_BYTES).cast::<Thread>() }
    }

    /// Nanoseconds since the start of the trace.
    fn at(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns)
    }

    /// Adds an event to the ring.
    pub fn write(&self, now_ns: u64, kind: Kind, thread: u16, lock: u8, argument: u32) {
        let event = Event { at_ns: self.at(now_ns), kind, thread, lock, argument };
        let number = self.header().head.fetch_add(1, RELAXED);
        let (first, second) = event.pack(lap(number, self.ring_capacity));
        let place = (number & (self.ring_capacity - 1)) as usize;
        // SAFETY: the place lies within the ring, whose capacity is a power of two; the words are
        // aligned, and only ever reached as atomics.
        let words =
            unsafe { &*self.base.add(RING_AT + place * EVENT_BYTES).cast::<[AtomicU64; 2]>() };
        words[0].store(first, RELAXED);
        // Release: a reader of the live file that sees the lap sees the first word.
        words[1].store(second, Ordering::Release);
    }

    /// Gives a new thread a record and says which. `hint` is tried first, then the next that is
    /// free; when all are taken, `OTHERS`.
    pub fn start_thread(&self, now_ns: u64, native_id: u32) -> u16 {
        let header = self.header();
        let fresh = header.threads.fetch_add(1, RELAXED);
        let place = if (fresh as usize) < THREAD_CAPACITY {
            fresh as u16
        } else {
            header.threads.store(THREAD_CAPACITY as u32, RELAXED);
            self.retire_one().unwrap_or(OTHERS)
        };
        if place == OTHERS {
            header.lost.fetch_add(1, RELAXED);
            return OTHERS;
        }
        let thread = self.thread(place);
        thread.native_id.store(native_id, RELAXED);
        thread.start_ns.store(self.at(now_ns), RELAXED);
        thread.since_ns.store(self.at(now_ns), RELAXED);
        thread.state.store(state::ELSEWHERE, RELAXED);
        self.write(now_ns, Kind::Start, place, 0, native_id);
        place
    }

    /// Adds the sums of a thread that has ended to those of the others and frees its record.
    fn retire_one(&self) -> Option<u16> {
        let place = (1..THREAD_CAPACITY as u16).find(|&place| {
            let taken = self.thread(place).state.compare_exchange(
                state::ENDED,
                state::UNUSED,
                RELAXED,
                RELAXED,
            );
            taken.is_ok()
        })?;
        let (from, to) = (self.thread(place), self.thread(OTHERS));
        let sums = [
            (&from.holding_ns, &to.holding_ns),
            (&from.waiting_ns, &to.waiting_ns),
            (&from.acquires, &to.acquires),
            (&from.waits, &to.waits),
            (&from.switches, &to.switches),
            (&from.forced, &to.forced),
            (&from.asks, &to.asks),
        ];
        for (from, to) in sums {
            to.fetch_add(from.swap(0, RELAXED), RELAXED);
        }
        let longest = [
            (&from.longest_wait_ns, &to.longest_wait_ns),
            (&from.longest_hold_ns, &to.longest_hold_ns),
            (&from.longest_answer_ns, &to.longest_answer_ns),
        ];
        for (from, to) in longest {
            to.fetch_max(from.swap(0, RELAXED), RELAXED);
        }
        let counts = from.wait_counts.iter().chain(&from.hold_counts);
        for (from, to) in counts.zip(to.wait_counts.iter().chain(&to.hold_counts)) {
            to.fetch_add(from.swap(0, RELAXED), RELAXED);
        }
        from.end_ns.store(0, RELAXED);
        self.set_name(place, b"");
        self.header().retired.fetch_add(1, RELAXED);
        Some(place)
    }

    pub fn end_thread(&self, now_ns: u64, thread: u16) {
        if thread == OTHERS {
            return;
        }
        self.leave_state(now_ns, thread, state::ENDED);
        self.thread(thread).end_ns.store(self.at(now_ns).max(1), RELAXED);
        self.write(now_ns, Kind::End, thread, 0, 0);
    }

    pub fn set_name(&self, thread: u16, name: &[u8]) {
        let record = self.thread(thread);
        let place = record.name.as_ptr().cast_mut();
        for index in 0..record.name.len() {
            let byte = name.get(index).copied().unwrap_or(0);
            // SAFETY: inside the name; nobody in this process reads it, and a reader of the live
            // file copes with half a name.
            unsafe { place.add(index).write_volatile(byte) };
        }
    }

    /// Ends the state that a thread is in, adds its length to the sums, and begins another.
    fn leave_state(&self, now_ns: u64, thread: u16, next: u32) -> (u32, u64) {
        let record = self.thread(thread);
        let at = self.at(now_ns);
        let was = record.state.load(RELAXED);
        let length = at.saturating_sub(record.since_ns.load(RELAXED));
        record.since_ns.store(at, RELAXED);
        record.state.store(next, RELAXED);
        let (sum, longest, counts) = match was {
            state::WAITING => (&record.waiting_ns, &record.longest_wait_ns, &record.wait_counts),
            state::HOLDING => (&record.holding_ns, &record.longest_hold_ns, &record.hold_counts),
            _ => return (was, length),
        };
        // A thread's record has one writer at a time: plain loads and stores do.
        sum.store(sum.load(RELAXED) + length, RELAXED);
        if length > longest.load(RELAXED) {
            longest.store(length, RELAXED);
        }
        if let Some(count) = counts.get(histogram::bucket(length)) {
            count.store(count.load(RELAXED).wrapping_add(1), RELAXED);
        }
        (was, length)
    }

    fn count(place: &AtomicU64) {
        place.store(place.load(RELAXED) + 1, RELAXED);
    }

    pub fn arrive(&self, now_ns: u64, thread: u16, lock: u8) {
        if self.thread(thread).state.load(RELAXED) != state::WAITING {
            self.leave_state(now_ns, thread, state::WAITING);
        }
        self.write(now_ns, Kind::Arrive, thread, lock, 0);
    }

    /// `core`: where the thread runs, if that is known.
    pub fn acquire(&self, now_ns: u64, thread: u16, lock: u8, core: Option<u32>) {
        let (was, _) = self.leave_state(now_ns, thread, state::HOLDING);
        let record = self.thread(thread);
        Recorder::count(&record.acquires);
        if was == state::WAITING {
            Recorder::count(&record.waits);
        }
        if let Some(last) = self.header().last.get(lock as usize)
            && last.load(RELAXED) != thread
        {
            last.store(thread, RELAXED);
            Recorder::count(&record.switches);
        }
        let core = core.map_or(0, |core| core.wrapping_add(1));
        self.write(now_ns, Kind::Acquire, thread, lock, core);
    }

    /// `asked_ns`: when the first drop request for this hold was made.
    pub fn release(&self, now_ns: u64, thread: u16, lock: u8, asked_ns: Option<u64>) {
        self.leave_state(now_ns, thread, state::ELSEWHERE);
        if let Some(asked_ns) = asked_ns {
            Recorder::count(&self.thread(thread).forced);
            let longest = &self.thread(thread).longest_answer_ns;
            let answer = now_ns.saturating_sub(asked_ns);
            if answer > longest.load(RELAXED) {
                longest.store(answer, RELAXED);
            }
        }
        self.write(now_ns, Kind::Release, thread, lock, u32::from(asked_ns.is_some()));
    }

    pub fn forced(&self, now_ns: u64, thread: u16, lock: u8) {
        self.write(now_ns, Kind::Forced, thread, lock, 0);
    }

    pub fn ask(&self, now_ns: u64, thread: u16, lock: u8) {
        Recorder::count(&self.thread(thread).asks);
        self.write(now_ns, Kind::Ask, thread, lock, 0);
    }

    pub fn interval(&self, now_ns: u64, thread: u16, lock: u8, length_ns: u64) {
        self.header().interval_ns.store(length_ns, RELAXED);
        let us = u32::try_from(length_ns / 1_000).unwrap_or(u32::MAX);
        self.write(now_ns, Kind::Interval, thread, lock, us);
    }
}
