//! How a trace file is laid out. All numbers are little-endian.
//!
//! ```text
//! 0          header        4096 bytes, `Header`
//! 4096       thread table  `thread_capacity` records of 1280 bytes, `Thread`
//! ring_at    ring          `ring_capacity` events of 16 bytes, a power of two
//! ```
//!
//! The ring keeps the last events; the thread table keeps sums and histograms of the whole run.
//! The file is sparse: what was not written takes no room.
//!
//! An event is two words. The second carries the lap of the ring on which it was written, and is
//! written last: an event whose writer was killed between the two has the lap of the event that it
//! overwrote, and the reader drops it.
//!
//! ```text
//! word 0   bits 0..8  kind   8..64  nanoseconds since `start_ns` (2.2 years)
//! word 1   bits 0..16 thread 16..24 lock 24..32 lap 32..64 argument
//! ```

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::histogram::BUCKETS;

pub const MAGIC: [u8; 8] = *b"deconvoy";

/// Raised with every change of the layout. A reader refuses a newer one.
pub const VERSION: u32 = 1;

pub const HEADER_BYTES: usize = 4096;
pub const THREAD_BYTES: usize = 1280;
pub const EVENT_BYTES: usize = 16;

/// Threads that a file has records for; the first one sums up those whose record was given to
/// another thread after they ended.
pub const THREAD_CAPACITY: usize = 16_384;
pub const OTHERS: u16 = 0;

/// Locks are numbered from 0; those beyond share the last number.
pub const MAX_LOCKS: usize = 256;

#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    pub version: u32,
    pub header_bytes: u32,
    pub thread_bytes: u32,
    pub thread_capacity: u32,
    pub ring_at: u64,
    pub ring_capacity: u64,
    pub pid: u32,
    pub parent_pid: u32,
    pub cores: u32,
    pub flags: u32,
    /// Of the monotonic clock, in nanoseconds; events count from here.
    pub start_ns: u64,
    /// Of the wall clock at the same moment.
    pub start_unix_ns: u64,
    /// The switch interval when last seen, in nanoseconds.
    pub interval_ns: AtomicU64,
    /// Events lost because the clock or a table ran out.
    pub lost: AtomicU64,
    /// Threads whose records were summed up in `OTHERS`.
    pub retired: AtomicU64,
    /// Records in use, from the first.
    pub threads: AtomicU32,
    pub locks: AtomicU32,
    pub _pad: [u8; 128 - 104],
    /// Events ever written; on a cache line of its own.
    pub head: AtomicU64,
    pub _pad2: [u8; 256 - 136],
    /// The policy as text, empty for stock; then what runs. Zero-padded.
    pub policy: [u8; 512],
    pub runtime: [u8; 256],
    pub command: [u8; 2048],
    /// The record of the thread that had each lock last.
    pub last: [AtomicU16; MAX_LOCKS],
}

/// The preloaded library only watched: the lock was the interpreter's own.
pub const FLAG_STOCK: u32 = 1;

/// The driver ran the instructions itself and counted them.
pub const FLAG_COUNTS_INSTRUCTIONS: u32 = 2;

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);
const _: () = assert!(offset_of!(Header, head) == 128);
const _: () = assert!(offset_of!(Header, policy) == 256);

/// A thread's sums over the whole run.
#[repr(C)]
pub struct Thread {
    pub native_id: AtomicU32,
    pub state: AtomicU32,
    pub name: [u8; 64],
    pub start_ns: AtomicU64,
    /// 0: alive.
    pub end_ns: AtomicU64,
    /// When it came into its present state.
    pub since_ns: AtomicU64,
    pub holding_ns: AtomicU64,
    pub waiting_ns: AtomicU64,
    pub acquires: AtomicU64,
    /// Acquires that had to wait.
    pub waits: AtomicU64,
    /// Acquires of a lock that another thread had last.
    pub switches: AtomicU64,
    /// Releases while a drop request was out: it had to let another in.
    pub forced: AtomicU64,
    /// Drop requests that it made.
    pub asks: AtomicU64,
    pub longest_wait_ns: AtomicU64,
    pub longest_hold_ns: AtomicU64,
    /// Longest time from a drop request to the release by this thread.
    pub longest_answer_ns: AtomicU64,
    pub _pad: [u64; 1],
    pub wait_counts: [AtomicU32; BUCKETS],
    pub hold_counts: [AtomicU32; BUCKETS],
}

const _: () = assert!(size_of::<Thread>() <= THREAD_BYTES);

/// What a thread is doing, in `Thread::state`.
pub mod state {
    pub const UNUSED: u32 = 0;
    pub const ELSEWHERE: u32 = 1;
    pub const WAITING: u32 = 2;
    pub const HOLDING: u32 = 3;
    pub const ENDED: u32 = 4;
}

/// Kinds of events. The first group is what happened to the lock; the second is what a policy was
/// told and said besides, recorded when one is in force, so that a trace replays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A thread is new. Argument: its native id.
    Start = 1,
    /// A thread has ended.
    End = 2,
    /// It finds the lock held and begins to wait, or to wait again.
    Arrive = 3,
    /// It has taken the lock. Argument: on which core, + 1; 0: not known.
    Acquire = 4,
    /// It has given it up. Argument: 1 if a drop request was out.
    Release = 5,
    /// It asked the holder to drop the lock.
    Ask = 6,
    /// After its release it had to wait until another thread had taken the lock.
    Forced = 7,
    /// A lock came into being.
    LockStart = 8,
    /// A lock is gone.
    LockEnd = 9,
    /// The process forked. Argument: the child.
    Fork = 10,
    /// The switch interval is another. Argument: microseconds.
    Interval = 11,

    /// The policy's record of the thread begins. Argument: a `Greeting`.
    Greet = 32,
    /// Its timer ran out.
    Expire = 33,
    /// It waits no longer.
    Leave = 34,
    /// The policy lets it try.
    Wake = 35,
    /// The policy sets its timer. Argument: nanoseconds from now.
    Timer = 36,
    /// The policy has it stay awake. Argument: nanoseconds from now; 0: it may sleep.
    Linger = 37,
    /// The policy keeps the free lock for it.
    Grant = 38,
    /// The policy is told which thread made it. Argument: the driver's number of that one.
    Made = 39,
    /// The policy takes a wake-up back.
    Recall = 40,
    /// The policy is told which thread woke it. Argument: the driver's number of that one.
    Woken = 41,
}

impl Kind {
    pub const ALL: [Kind; 21] = [
        Kind::Start,
        Kind::End,
        Kind::Arrive,
        Kind::Acquire,
        Kind::Release,
        Kind::Ask,
        Kind::Forced,
        Kind::LockStart,
        Kind::LockEnd,
        Kind::Fork,
        Kind::Interval,
        Kind::Greet,
        Kind::Expire,
        Kind::Leave,
        Kind::Wake,
        Kind::Timer,
        Kind::Linger,
        Kind::Grant,
        Kind::Made,
        Kind::Recall,
        Kind::Woken,
    ];

    pub fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|&kind| kind as u8 == code)
    }
}

/// One event, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Since the start of the trace.
    pub at_ns: u64,
    pub kind: Kind,
    pub thread: u16,
    pub lock: u8,
    pub argument: u32,
}

/// The argument of `Kind::Greet`: bits 0..8 priority, 8..32 the driver's number + 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    pub priority: i8,
    /// The number that the policy knows the thread by, which is given again when it has ended.
    /// `None`: not recorded.
    pub number: Option<u32>,
}

impl Greeting {
    pub fn pack(self) -> u32 {
        let number = self.number.map_or(0, |number| number.wrapping_add(1));
        u32::from(self.priority.cast_unsigned()) | number << 8
    }

    pub fn unpack(argument: u32) -> Greeting {
        Greeting {
            priority: (argument as u8).cast_signed(),
            number: (argument >> 8).checked_sub(1),
        }
    }
}

const TIME_BITS: u32 = 56;
pub const LAST_NS: u64 = (1 << TIME_BITS) - 1;

impl Event {
    /// The two words, for a place on lap `lap` of the ring.
    pub fn pack(self, lap: u8) -> (u64, u64) {
        let first = (self.at_ns.min(LAST_NS) << 8) | u64::from(self.kind as u8);
        let second = u64::from(self.thread)
            | u64::from(self.lock) << 16
            | u64::from(lap) << 24
            | u64::from(self.argument) << 32;
        (first, second)
    }

    /// `None`: the event was not written on that lap, or is none.
    pub fn unpack(first: u64, second: u64, lap: u8) -> Option<Event> {
        let written_on = (second >> 24) as u8;
        let kind = Kind::from_code(first as u8)?;
        (written_on == lap).then_some(Event {
            at_ns: first >> 8,
            kind,
            thread: second as u16,
            lock: (second >> 16) as u8,
            argument: (second >> 32) as u32,
        })
    }
}

/// The lap on which the event with this number was written; never 0, so that fresh memory is none.
pub fn lap(number: u64, ring_capacity: u64) -> u8 {
    ((number / ring_capacity.max(1)) % 255) as u8 + 1
}

/// Where the ring starts, in bytes from the start of the file.
pub const RING_AT: usize = HEADER_BYTES + THREAD_CAPACITY * THREAD_BYTES;
const _: () = assert!(RING_AT.is_multiple_of(4096));
