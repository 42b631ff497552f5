//! How a file of a lock profile is laid out: which mutexes a process took, how often it had to
//! wait, and from where. All numbers are in the machine's byte order (little-endian).
//!
//! ```text
//! 0           header    4096 bytes, `Header`
//! MAPS_AT     maps      text of /proc/self/maps, as often as new code was seen, one after another
//! BLOCKS_AT   blocks    `BLOCKS` tables of `SITES` sites; a thread counts in one of them
//! SAMPLES_AT  samples   `SAMPLES` pieces of stacks, `Sample`
//! ```
//!
//! The file is sparse: what was not written takes no room. Every number in it is written at once,
//! so that a kill at any point leaves what was counted until then.

use core::sync::atomic::{AtomicU32, AtomicU64};

pub const MAGIC: [u8; 8] = *b"dcvlocks";

/// Raised with every change of the layout. A reader refuses a newer one.
pub const VERSION: u32 = 1;

pub const HEADER_BYTES: usize = 4096;
pub const MAPS_AT: usize = HEADER_BYTES;
pub const MAPS_BYTES: usize = 1 << 20;

/// Threads beyond share the tables of others.
pub const BLOCKS: usize = 256;
pub const SITES: usize = 128;
pub const BLOCKS_AT: usize = MAPS_AT + MAPS_BYTES;

pub const SAMPLES: usize = 2048;
pub const SAMPLES_AT: usize = BLOCKS_AT + BLOCKS * SITES * size_of::<Site>();
pub const FILE_BYTES: usize = SAMPLES_AT + SAMPLES * size_of::<Sample>();

/// What of a stack is kept.
pub const STACK_BYTES: usize = 8192 - 48;

#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    pub version: u32,
    pub pid: u32,
    /// Threads that have begun to count.
    pub threads: AtomicU32,
    /// Samples that were begun; more than there is room for: the rest was left out.
    pub samples: AtomicU32,
    /// Bytes of maps.
    pub maps: AtomicU64,
    /// Acquisitions of sites that had no room in a table.
    pub uncounted: AtomicU64,
}

/// A mutex, taken from one place in the code.
#[repr(C)]
pub struct Site {
    /// Tells the pair of both addresses and the kind from others; 0: free. Written first.
    pub key: AtomicU64,
    pub mutex: AtomicU64,
    /// Where the call returns to.
    pub caller: AtomicU64,
    pub kind: AtomicU64,
    pub taken: AtomicU64,
    /// Of those, when it was not free at once.
    pub contended: AtomicU64,
    /// How long these waited in all, in nanoseconds.
    pub waited_ns: AtomicU64,
    pub unused: AtomicU64,
}

/// The stack of a thread that takes a mutex: what an unwinder needs. `bytes` from `sp` on.
#[repr(C)]
pub struct Sample {
    /// Of the site; written last, so that it is 0 in a sample that is not whole.
    pub key: AtomicU64,
    pub caller: AtomicU64,
    pub sp: AtomicU64,
    pub fp: AtomicU64,
    pub bytes: AtomicU64,
    pub unused: AtomicU64,
    pub stack: [u8; STACK_BYTES],
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);
const _: () = assert!(size_of::<Site>() == 64);
const _: () = assert!(size_of::<Sample>() == 8192);
const _: () = assert!(BLOCKS_AT.is_multiple_of(4096) && SAMPLES_AT.is_multiple_of(4096));

/// What kind of lock a site takes, and how.
pub mod kind {
    pub const MUTEX: u64 = 0;
    pub const READ: u64 = 1;
    pub const WRITE: u64 = 2;
    pub const SPIN: u64 = 3;
}
