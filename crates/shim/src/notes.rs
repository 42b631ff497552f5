//! What a thread leaves for one that it made: the new one finds it under its own handle.
//!
//! Each handle has one place, and a later note takes the place of an earlier one: that one's thread
//! never used a lock, or goes without. Nothing that is kept here is needed, so a thread that finds
//! another one at its place goes without, too.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

pub const NAME_BYTES: usize = 64;

#[derive(Clone, Copy)]
pub struct Note {
    /// What Python calls the new thread; zeroes: not known.
    pub name: [u8; NAME_BYTES],
    /// See `Slot::made_by`.
    pub made_by: u64,
}

/// | `thread` | means |
/// |---|---|
/// | `FREE` | nothing here |
/// | `TAKEN` | one thread is at the note |
/// | other | the note is for that thread (a `pthread_t`) |
struct Place {
    thread: AtomicU64,
    note: UnsafeCell<Note>,
}

// SAFETY: `note` is reached only by the one thread that moved `thread` to `TAKEN`.
unsafe impl Sync for Place {}

const FREE: u64 = 0;
const TAKEN: u64 = u64::MAX;

impl Place {
    const fn new() -> Place {
        let note = Note { name: [0; NAME_BYTES], made_by: 0 };
        Place { thread: AtomicU64::new(FREE), note: UnsafeCell::new(note) }
    }

    /// Takes the place in state `from`, does `act`, and leaves it in state `to`.
    fn take<R>(&self, from: u64, to: u64, act: impl FnOnce(&mut Note) -> R) -> Option<R> {
        // Acquire pairs with the Release below: the note is seen.
        self.thread.compare_exchange(from, TAKEN, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: this thread moved it to `TAKEN`.
        let result = act(unsafe { &mut *self.note.get() });
        self.thread.store(to, Ordering::Release);
        Some(result)
    }
}

const BITS: u32 = 6;

static PLACES: [Place; 1 << BITS] = [const { Place::new() }; 1 << BITS];

/// Handles lie a stack's size apart: all of their bits have a say (Fibonacci hashing).
fn place(thread: u64) -> Option<&'static Place> {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    PLACES.get((thread.wrapping_mul(GOLDEN) >> (u64::BITS - BITS)) as usize)
}

/// Leaves `note` for `thread`.
pub fn leave(thread: u64, note: Note) {
    let Some(place) = place(thread) else { return };
    let present = place.thread.load(Ordering::Relaxed);
    if present != TAKEN {
        place.take(present, thread, |old| *old = note);
    }
}

/// Takes what was left for `thread`.
pub fn fetch(thread: u64) -> Option<Note> {
    place(thread)?.take(thread, FREE, |note| *note)
}

/// In a forked child: those that the notes are for are not in it.
pub fn forked() {
    for place in &PLACES {
        place.thread.store(FREE, Ordering::Relaxed);
    }
}
