//! Memory for a lock's policy.

use deconvoy_policy::{MAX_THREADS, Slot};

use crate::sys::{map_anonymous, zero_pages};

/// Memory for one lock's policy, of which only what is touched takes room. Kept for the next lock
/// in this place: a program may make and end interpreters all day.
pub struct Records {
    slots: *mut Slot,
    generations: *mut u32,
}

// SAFETY: memory that nothing else knows, reached through the lock that it belongs to.
unsafe impl Send for Records {}

impl Records {
    const SLOTS_BYTES: usize = MAX_THREADS * size_of::<Slot>();
    const GENERATIONS_BYTES: usize = MAX_THREADS * size_of::<u32>();

    pub const fn new() -> Records {
        Records { slots: core::ptr::null_mut(), generations: core::ptr::null_mut() }
    }

    /// All zeroes, whatever was there before; `None`: there is no memory.
    pub fn renew(&mut self) -> Option<(&'static mut [Slot], &'static mut [u32])> {
        self.slots = renewed(self.slots.cast(), Self::SLOTS_BYTES)?.cast();
        self.generations = renewed(self.generations.cast(), Self::GENERATIONS_BYTES)?.cast();
        // SAFETY: page-aligned, zeroed mappings of those sizes that stay; all-zero bytes are valid
        // values of both types. What referred to them before belongs to a lock that is gone.
        unsafe {
            Some((
                core::slice::from_raw_parts_mut(self.slots, MAX_THREADS),
                core::slice::from_raw_parts_mut(self.generations, MAX_THREADS),
            ))
        }
    }
}

/// A zeroed mapping: the one at `old`, or a fresh one.
pub fn renewed(old: *mut u8, bytes: usize) -> Option<*mut u8> {
    // SAFETY: what is not null was mapped with that size, for this alone.
    if !old.is_null() && unsafe { zero_pages(old, bytes) } {
        return Some(old);
    }
    map_anonymous(bytes)
}
