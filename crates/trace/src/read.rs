//! The reader: a trace file into memory, whatever state it was left in.
//!
//! A trace is written in place by a process that may be killed at any point, so a file that is
//! torn at its tail or cut short is the usual case, not an error: what can be read is read. What
//! contradicts itself is refused with a line that a user can act on. Nothing here trusts a number
//! of the file: no look-up panics, and no allocation is larger than the file.

use std::fs::File;
use std::io::Read;
use std::mem::offset_of;
use std::path::Path;

use deconvoy_policy::Driver;

use crate::format::{
    EVENT_BYTES, Event, FLAG_COUNTS_INSTRUCTIONS, FLAG_STOCK, HEADER_BYTES, Header, MAGIC, OTHERS,
    THREAD_BYTES, Thread, VERSION, lap, state,
};

mod error;
mod sound;
mod threads;

pub use error::ReadError;
pub use threads::ThreadSums;

/// The ring's numbers are meaningless beyond this many events (16 TiB).
const MOST_RING_EVENTS: u64 = 1 << 40;

/// A thread is an event's 16-bit number.
const MOST_THREADS: u32 = 1 << 16;

/// What a trace says of its process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AboutProcess {
    pub pid: u32,
    pub parent_pid: u32,
    pub cores: u32,
    /// The lock followed the interpreter's own rule; the library only watched.
    pub stock: bool,
    /// The driver ran the instructions itself, and counted them.
    pub counts_instructions: bool,
    /// Of the monotonic clock.
    pub start_ns: u64,
    /// Of the wall clock at the same moment.
    pub start_unix_ns: u64,
    /// The switch interval when last seen; 0: nobody ever waited.
    pub interval_ns: u64,
    /// As given by the user; empty for stock.
    pub policy: String,
    pub runtime: String,
    pub command: Vec<String>,
}

/// Whether a trace is of a Ruby, as its header names the runtime.
pub(crate) fn is_ruby(runtime: &str) -> bool {
    runtime.starts_with("ruby ")
}

impl AboutProcess {
    /// What ran the policy.
    pub fn driver(&self) -> Driver {
        Driver { cores: self.cores, counts_instructions: self.counts_instructions }
    }
}

/// A trace, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    pub about: AboutProcess,
    /// In order of `index`; the record of the others only if there is anything in it.
    pub threads: Vec<ThreadSums>,
    /// In the order in which they were written.
    pub events: Vec<Event>,
    /// The last moment that the file knows of, since the start of the trace.
    pub end_ns: u64,
    /// Events lost because the ring went round.
    pub overwritten: u64,
    /// Events whose writer was killed in the middle of it.
    pub torn: u64,
    /// Events lost because a table ran out.
    pub lost: u64,
    /// Threads that ended and whose records were given to others; their sums are in the first.
    pub retired: u64,
    /// The file ends before its last event.
    pub truncated: bool,
}

/// Little-endian numbers and text at places of a file; zero where it has none.
#[derive(Clone, Copy)]
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn part(self, at: usize, length: usize) -> &'b [u8] {
        let end = at.saturating_add(length).min(self.0.len());
        self.0.get(at..end).unwrap_or(&[])
    }

    fn number<const N: usize>(self, at: usize) -> [u8; N] {
        self.part(at, N).try_into().unwrap_or([0; N])
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.number(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.number(at))
    }

    fn text(self, at: usize, length: usize) -> String {
        let bytes = self.part(at, length);
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(bytes.get(..end).unwrap_or(&[])).into_owned()
    }
}

/// Where things are, as the header says and after it was checked.
#[derive(Clone, Copy)]
struct Layout {
    thread_capacity: usize,
    /// Records in use.
    threads: usize,
    ring_at: usize,
    ring_capacity: u64,
    /// Events ever written.
    head: u64,
}

impl Layout {
    /// `bytes`: the file up to its ring, or as far as it goes; `file_bytes`: how long it is.
    fn read(bytes: Bytes<'_>, file_bytes: u64) -> Result<Layout, ReadError> {
        let magic = bytes.part(0, MAGIC.len());
        // The file of a process that was killed as it began has its length and nothing else.
        if file_bytes == 0 || (magic.len() == MAGIC.len() && magic.iter().all(|&byte| byte == 0)) {
            return Err(ReadError::Empty);
        }
        if magic != MAGIC {
            return Err(ReadError::NotATrace);
        }
        let format = bytes.u32(offset_of!(Header, version));
        if format > VERSION {
            return Err(ReadError::Newer { format, known: VERSION });
        }
        let size = |what, found: u32, expected: usize| match u64::from(found) == expected as u64 {
            true => Ok(()),
            false => Err(ReadError::Size { what, found: found.into(), expected: expected as u64 }),
        };
        if file_bytes < HEADER_BYTES as u64 {
            return Err(ReadError::TooShort { bytes: file_bytes, needed: HEADER_BYTES as u64 });
        }
        size("its header", bytes.u32(offset_of!(Header, header_bytes)), HEADER_BYTES)?;
        size("a thread", bytes.u32(offset_of!(Header, thread_bytes)), THREAD_BYTES)?;
        let ring_capacity = bytes.u64(offset_of!(Header, ring_capacity));
        if !ring_capacity.is_power_of_two() || ring_capacity > MOST_RING_EVENTS {
            return Err(ReadError::RingCapacity(ring_capacity));
        }
        let thread_capacity = bytes.u32(offset_of!(Header, thread_capacity));
        if !(1..=MOST_THREADS).contains(&thread_capacity) {
            return Err(ReadError::ThreadCapacity(thread_capacity));
        }
        let ring_at = bytes.u64(offset_of!(Header, ring_at));
        let least = HEADER_BYTES as u64 + u64::from(thread_capacity) * THREAD_BYTES as u64;
        if ring_at < least {
            return Err(ReadError::RingPlace { found: ring_at, least });
        }
        if file_bytes < ring_at {
            return Err(ReadError::TooShort { bytes: file_bytes, needed: ring_at });
        }
        let thread_capacity = thread_capacity as usize;
        let threads = bytes.u32(offset_of!(Header, threads)) as usize;
        Ok(Layout {
            thread_capacity,
            threads: threads.min(thread_capacity),
            ring_at: usize::try_from(ring_at).unwrap_or(usize::MAX),
            ring_capacity,
            head: bytes.u64(offset_of!(Header, head)),
        })
    }

    /// The file up to here holds everything that was written.
    fn used_bytes(&self) -> u64 {
        self.ring_at as u64 + self.head.min(self.ring_capacity) * EVENT_BYTES as u64
    }
}

fn about(bytes: Bytes<'_>) -> AboutProcess {
    let command = bytes.part(offset_of!(Header, command), 2048);
    let end = command.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let arguments = command.get(..end).unwrap_or(&[]);
    let flags = bytes.u32(offset_of!(Header, flags));
    AboutProcess {
        pid: bytes.u32(offset_of!(Header, pid)),
        parent_pid: bytes.u32(offset_of!(Header, parent_pid)),
        cores: bytes.u32(offset_of!(Header, cores)),
        stock: flags & FLAG_STOCK != 0,
        counts_instructions: flags & FLAG_COUNTS_INSTRUCTIONS != 0,
        start_ns: bytes.u64(offset_of!(Header, start_ns)),
        start_unix_ns: bytes.u64(offset_of!(Header, start_unix_ns)),
        interval_ns: bytes.u64(offset_of!(Header, interval_ns)),
        policy: bytes.text(offset_of!(Header, policy), 512),
        runtime: bytes.text(offset_of!(Header, runtime), 256),
        command: match arguments {
            [] => Vec::new(),
            _ => arguments
                .split(|&byte| byte == 0)
                .map(|argument| String::from_utf8_lossy(argument).into_owned())
                .collect(),
        },
    }
}

/// The events that are left in the ring.
struct Ring {
    events: Vec<Event>,
    torn: u64,
    truncated: bool,
}

fn ring(bytes: Bytes<'_>, layout: &Layout) -> Ring {
    let words = bytes.0.get(layout.ring_at..).unwrap_or(&[]);
    let there = (words.len() / EVENT_BYTES) as u64;
    let first = layout.head.saturating_sub(layout.ring_capacity);
    let start = first & (layout.ring_capacity - 1);
    let wanted = layout.head - first;
    // The ring from `start` to its end, then from its beginning: two runs of places.
    let runs = [
        (first, start, (start + wanted).min(layout.ring_capacity)),
        (
            first + (layout.ring_capacity - start),
            0,
            (start + wanted).saturating_sub(layout.ring_capacity),
        ),
    ];
    let mut ring = Ring { events: Vec::new(), torn: 0, truncated: false };
    ring.events.reserve(usize::try_from(wanted.min(there)).unwrap_or(0));
    for (number, from, to) in runs {
        ring.truncated |= to > from && to > there;
        for place in from..to.min(there) {
            let event = bytes.part(layout.ring_at + place as usize * EVENT_BYTES, EVENT_BYTES);
            let event = Bytes(event);
            let lap = lap(number.saturating_add(place - from), layout.ring_capacity);
            match Event::unpack(event.u64(0), event.u64(8), lap) {
                Some(event) => ring.events.push(event),
                None => ring.torn += 1,
            }
        }
    }
    ring
}

impl Trace {
    /// Reads a trace from its file, which may still be written to.
    ///
    /// # Errors
    /// A [`ReadError`] that says what is wrong with the file.
    pub fn open(path: &Path) -> Result<Trace, ReadError> {
        let mut file = File::open(path)?;
        let file_bytes = file.metadata()?.len();
        let mut bytes = Vec::new();
        file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
        let layout = Layout::read(Bytes(&bytes), file_bytes)?;
        // The file is sparse: what was never written is not read.
        let rest = layout.used_bytes().saturating_sub(HEADER_BYTES as u64);
        file.take(rest).read_to_end(&mut bytes)?;
        Trace::read(Bytes(&bytes), &layout).checked()
    }

    /// Reads a trace from the bytes of its file.
    ///
    /// # Errors
    /// A [`ReadError`] that says what is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, ReadError> {
        let layout = Layout::read(Bytes(bytes), bytes.len() as u64)?;
        Trace::read(Bytes(bytes), &layout).checked()
    }

    fn read(bytes: Bytes<'_>, layout: &Layout) -> Trace {
        let ring = ring(bytes, layout);
        let in_use = (0..layout.threads.min(layout.thread_capacity))
            .filter_map(|index| u16::try_from(index).ok());
        let number = |index: u16, offset: usize| {
            bytes.u64(HEADER_BYTES + usize::from(index) * THREAD_BYTES + offset)
        };
        let last_of = |index| {
            number(index, offset_of!(Thread, end_ns))
                .max(number(index, offset_of!(Thread, since_ns)))
        };
        let last_event_ns = ring.events.iter().map(|event| event.at_ns).max();
        // Without events, the table knows when something last happened.
        let end_ns = last_event_ns.or_else(|| in_use.clone().map(last_of).max()).unwrap_or(0);
        let mut threads = Vec::with_capacity(layout.threads.min(layout.thread_capacity));
        threads.extend(in_use.map(|index| threads::thread(bytes, index, end_ns)).filter(|sums| {
            match sums.index {
                OTHERS => sums.acquires > 0 || sums.waits > 0,
                _ => sums.state != state::UNUSED,
            }
        }));
        Trace {
            about: about(bytes),
            threads,
            events: ring.events,
            end_ns,
            overwritten: layout.head.saturating_sub(layout.ring_capacity),
            torn: ring.torn,
            lost: bytes.u64(offset_of!(Header, lost)),
            retired: bytes.u64(offset_of!(Header, retired)),
            truncated: ring.truncated,
        }
    }

    /// The sums of the thread that events call `index`.
    pub fn thread(&self, index: u16) -> Option<&ThreadSums> {
        let place = self.threads.binary_search_by_key(&index, |thread| thread.index).ok()?;
        self.threads.get(place)
    }

    /// When the first event that is left was written, since the start of the trace: 0 when none
    /// is missing.
    pub fn covered_from_ns(&self) -> u64 {
        match self.overwritten {
            0 => 0,
            _ => self.events.iter().map(|event| event.at_ns).min().unwrap_or(self.end_ns),
        }
    }

    /// Its events are all that happened.
    pub fn is_whole(&self) -> bool {
        self.overwritten == 0 && self.torn == 0 && !self.truncated
    }
}
