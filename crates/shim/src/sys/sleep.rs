//! Waits that another thread ends.

use deconvoy_policy::Nanos;

use super::{Timespec, number, pid, syscall};

/// A signal that Ruby itself ends waits with, and that does nothing else.
const SIGVTALRM: usize = 26;
const VTALRM_MASK: u64 = 1 << (SIGVTALRM - 1);

/// Ends a wait of [`wait_readable`] of a thread of this process.
pub fn interrupt(thread: u32) {
    // SAFETY: a signal with a handler, for a thread of this process, or for none.
    unsafe { syscall(number::TGKILL, [pid() as usize, thread as usize, SIGVTALRM, 0, 0, 0]) };
}

/// Short sleeps of the calling thread take as long as they are to, not 50 us more.
pub fn sleep_exactly() {
    const PR_SET_TIMERSLACK: usize = 29;
    const SLACK_NS: usize = 1_000;
    // SAFETY: it sets a number of the calling thread's.
    unsafe { syscall(number::PRCTL, [PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0, 0]) };
}

/// The signals that the calling thread keeps waiting.
#[derive(Clone, Copy)]
pub struct Kept(u64);

/// From here to `restore` the signal of [`interrupt`] comes in [`wait_readable`] only.
pub fn keep_interrupts() -> Kept {
    const BLOCK: usize = 0;
    let (more, mut before) = (VTALRM_MASK, 0u64);
    let (more, place) = (&raw const more as usize, &raw mut before as usize);
    // SAFETY: the kernel reads one mask and writes the other.
    unsafe { syscall(number::RT_SIGPROCMASK, [BLOCK, more, place, size_of::<u64>(), 0, 0]) };
    Kept(before)
}

impl Kept {
    pub fn restore(self) {
        const SET: usize = 2;
        let mask = &raw const self.0 as usize;
        // SAFETY: the kernel reads the mask.
        unsafe { syscall(number::RT_SIGPROCMASK, [SET, mask, 0, size_of::<u64>(), 0, 0]) };
    }
}

/// Waits until a file has something to read, for so long (`None`: for ever), or until the thread is
/// interrupted.
pub fn wait_readable(file: i32, limit: Option<Nanos>, kept: Kept) {
    #[repr(C)]
    struct Poll {
        file: i32,
        events: i16,
        found: i16,
    }
    const READABLE: i16 = 1;
    let mut poll = Poll { file, events: READABLE, found: 0 };
    let limit = limit.map(Timespec::at);
    let limit = limit.as_ref().map_or(0, |limit| &raw const *limit as usize);
    let mask = kept.0 & !VTALRM_MASK;
    let (place, mask) = (&raw mut poll as usize, &raw const mask as usize);
    // SAFETY: the kernel reads and writes what lives as long as the call.
    unsafe { syscall(number::PPOLL, [place, 1, limit, mask, size_of::<u64>(), 0]) };
}
