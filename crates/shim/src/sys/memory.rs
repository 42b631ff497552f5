//! Memory: mapped, made anew, and read where there may be none.

use super::{number, pid, syscall};

/// Fresh zeroed memory, of which only what is touched takes room; `None` when there is none.
pub fn map_anonymous(bytes: usize) -> Option<*mut u8> {
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
    map(bytes, PRIVATE_ANONYMOUS_NORESERVE, usize::MAX)
}

/// Makes the memory of [`map_anonymous`] all zeroes again. Whether it could.
///
/// # Safety
/// `at` came from there, with `bytes`, and nobody uses what was in it.
pub unsafe fn zero_pages(at: *mut u8, bytes: usize) -> bool {
    const DONTNEED: usize = 4;
    // SAFETY: as the caller says.
    unsafe { syscall(number::MADVISE, [at as usize, bytes, DONTNEED, 0, 0, 0]) == 0 }
}

pub(super) fn map(bytes: usize, flags: usize, file: usize) -> Option<*mut u8> {
    const READ_WRITE: usize = 3;
    // SAFETY: a new mapping at a place of the kernel's choice harms nothing.
    let at = unsafe { syscall(number::MMAP, [0, bytes, READ_WRITE, flags, file, 0]) };
    (at > 0).then_some(at as *mut u8)
}

/// Copies memory of this process that may not be there, as far as it is; how many bytes, or less than
/// none: what the kernel says.
///
/// # Safety
/// `to` is `bytes` bytes that nobody else writes.
unsafe fn copy(from: usize, to: *mut u8, bytes: usize) -> isize {
    let here = [to as usize, bytes];
    let there = [from, bytes];
    let (local, remote) = (here.as_ptr() as usize, there.as_ptr() as usize);
    // SAFETY: the kernel writes to the place only and answers a bad address with an error.
    unsafe { syscall(number::PROCESS_VM_READV, [pid() as usize, local, 1, remote, 1, 0]) }
}

/// Copies memory of this process that may not be there, as far as it is; how many bytes.
///
/// # Safety
/// `to` is `bytes` bytes that nobody else writes.
#[cfg(feature = "mutexes")]
pub unsafe fn copy_memory(from: usize, to: *mut u8, bytes: usize) -> usize {
    // SAFETY: as the caller says.
    usize::try_from(unsafe { copy(from, to, bytes) }).unwrap_or(0)
}

/// Reads memory of this process that may not be there.
pub fn peek<const WORDS: usize>(address: usize) -> Option<[u64; WORDS]> {
    let mut words = [0u64; WORDS];
    let bytes = size_of_val(&words);
    // SAFETY: `words` are so many bytes, and known here only.
    let read = unsafe { copy(address, words.as_mut_ptr().cast(), bytes) };
    if usize::try_from(read) == Ok(bytes) {
        return Some(words);
    }
    // Forbidden by a sandbox, it may be: memory around a lock that lies on one page with the lock
    // itself is there.
    const PAGE: usize = 4096;
    const EPERM: isize = -1;
    const ENOSYS: isize = -38;
    let on_one_page = address / PAGE == (address + bytes) / PAGE;
    if (read == EPERM || read == ENOSYS) && on_one_page && address.is_multiple_of(8) {
        // SAFETY: the caller's lock is on this page (see `locks::looks_like_one`).
        return Some(unsafe { (address as *const [u64; WORDS]).read_volatile() });
    }
    None
}
