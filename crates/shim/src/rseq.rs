//! The core that another thread runs on, which the kernel writes down in each thread's own area for
//! restartable sequences: a load, and no system call.
//!
//! glibc registers that area from 2.35 on and says where it is. Source: `rseq(2)`, and glibc's manual,
//! "Restartable Sequences".

use core::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

use crate::loader;

/// From the thread pointer to the core's number; 0: there is none.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Where the core's number is in the area.
const CPU_ID: isize = 4;

/// Called once, from the constructor.
pub fn set_up() {
    let offset = loader::symbol(c"__rseq_offset").cast::<isize>();
    let size = loader::symbol(c"__rseq_size").cast::<u32>();
    // SAFETY: the C library's constants, of these types; its own constructor has run.
    let found = unsafe { offset.as_ref().zip(size.as_ref()) };
    // A C library that was told not to register says that the area has no size.
    if let Some((offset, _)) = found.filter(|&(_, &size)| size > 0) {
        OFFSET.store(offset + CPU_ID, Ordering::Relaxed);
    }
}

/// Where the core of the calling thread is written down, as long as the thread lives; 0: nowhere.
pub fn word() -> usize {
    match OFFSET.load(Ordering::Relaxed) {
        0 => 0,
        offset => thread_pointer().wrapping_add_signed(offset),
    }
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI has the thread pointer in this word.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, pure));
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI has the thread pointer in this register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, pure));
    }
    pointer
}

/// The core that a thread runs on, or ran on last.
///
/// # Safety
/// `word` is 0, or that of a thread which has not ended.
pub unsafe fn core_at(word: usize) -> Option<u32> {
    if word == 0 {
        return None;
    }
    // SAFETY: as the caller says; the kernel writes this word whole.
    let core = unsafe { &*(word as *const AtomicU32) }.load(Ordering::Relaxed);
    // Negative: the thread is not registered.
    i32::try_from(core).is_ok().then_some(core)
}
