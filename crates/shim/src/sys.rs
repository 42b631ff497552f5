//! System calls, without a C library in between: none of them touches `errno`.

use core::arch::asm;

use deconvoy_gil::{AtomicU32, Cores, System};
use deconvoy_policy::Nanos;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const CLOSE: usize = 3;
    pub const SCHED_YIELD: usize = 24;
    pub const MADVISE: usize = 28;
    pub const MMAP: usize = 9;
    pub const GETPID: usize = 39;
    pub const GETPPID: usize = 110;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const SCHED_SETAFFINITY: usize = 203;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const OPENAT: usize = 257;
    pub const FTRUNCATE: usize = 77;
    pub const READ: usize = 0;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const TGKILL: usize = 234;
    pub const PPOLL: usize = 271;
    pub const CLOCK_GETTIME: usize = 228;
    pub const PROCESS_VM_READV: usize = 310;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const CLOSE: usize = 57;
    pub const SCHED_YIELD: usize = 124;
    pub const MADVISE: usize = 233;
    pub const MMAP: usize = 222;
    pub const GETPID: usize = 172;
    pub const GETPPID: usize = 173;
    pub const PRCTL: usize = 167;
    pub const GETTID: usize = 178;
    pub const FUTEX: usize = 98;
    pub const SCHED_SETAFFINITY: usize = 122;
    pub const SCHED_GETAFFINITY: usize = 123;
    pub const OPENAT: usize = 56;
    pub const FTRUNCATE: usize = 46;
    pub const READ: usize = 63;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const TGKILL: usize = 131;
    pub const PPOLL: usize = 73;
    pub const CLOCK_GETTIME: usize = 113;
    pub const PROCESS_VM_READV: usize = 270;
}

/// # Safety
/// The call with these arguments harms no memory of this program.
#[cfg(target_arch = "x86_64")]
unsafe fn syscall(number: usize, a: [usize; 6]) -> isize {
    let result;
    // SAFETY: the caller vouches for the call; the kernel keeps all registers but those named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// # Safety
/// The call with these arguments harms no memory of this program.
#[cfg(target_arch = "aarch64")]
unsafe fn syscall(number: usize, a: [usize; 6]) -> isize {
    let result;
    // SAFETY: the caller vouches for the call; the kernel keeps all registers but x0.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    result
}

#[repr(C)]
pub struct Timespec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl Timespec {
    pub fn at(time: Nanos) -> Timespec {
        Timespec {
            seconds: i64::try_from(time.0 / 1_000_000_000).unwrap_or(i64::MAX),
            nanoseconds: i64::try_from(time.0 % 1_000_000_000).unwrap_or(0),
        }
    }

    pub fn nanos(&self) -> Nanos {
        let seconds = u64::try_from(self.seconds).unwrap_or(0);
        let rest = u64::try_from(self.nanoseconds).unwrap_or(0);
        Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
    }
}

unsafe extern "C" {
    /// In the vDSO through the C library: no system call, no `errno` for these clocks.
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;

    /// Likewise.
    fn sched_getcpu() -> i32;
}

const CLOCK_REALTIME: i32 = 0;
const CLOCK_MONOTONIC: i32 = 1;

fn clock(which: i32) -> Nanos {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: `time` is a valid place for the result.
    unsafe { clock_gettime(which, &raw mut time) };
    time.nanos()
}

pub fn unix_ns() -> u64 {
    clock(CLOCK_REALTIME).0
}

/// Linux, as a gate needs it.
#[derive(Clone, Copy)]
pub struct Linux;

const FUTEX_WAKE: usize = 1;
const FUTEX_WAIT_BITSET: usize = 9;
const FUTEX_PRIVATE: usize = 128;

impl System for Linux {
    fn now(&self) -> Nanos {
        clock(CLOCK_MONOTONIC)
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, deadline: Option<Nanos>) {
        let time = deadline.map(Timespec::at);
        let time = time.as_ref().map_or(0, |time| &raw const *time as usize);
        let op = FUTEX_WAIT_BITSET | FUTEX_PRIVATE;
        let word = &raw const *word as usize;
        // SAFETY: the word and the deadline outlive the call, which reads both.
        unsafe {
            syscall(number::FUTEX, [word, op, expected as usize, time, 0, u32::MAX as usize])
        };
    }

    fn futex_wake(&self, word: &AtomicU32, count: u32) {
        let word = &raw const *word as usize;
        // SAFETY: the call reads nothing but the word's address.
        unsafe {
            syscall(number::FUTEX, [word, FUTEX_WAKE | FUTEX_PRIVATE, count as usize, 0, 0, 0]);
        }
    }

    fn core(&self) -> Option<u32> {
        // SAFETY: no arguments.
        u32::try_from(unsafe { sched_getcpu() }).ok()
    }

    fn yield_now(&self) {
        // SAFETY: no arguments.
        unsafe { syscall(number::SCHED_YIELD, [0; 6]) };
    }

    fn allowed(&self) -> Option<Cores> {
        affinity_of(0)
    }

    fn allow(&self, cores: &Cores) -> bool {
        let (bytes, place) = (size_of::<Cores>(), cores.as_ptr() as usize);
        // SAFETY: the kernel reads `bytes` of `cores`.
        unsafe { syscall(number::SCHED_SETAFFINITY, [0, bytes, place, 0, 0, 0]) == 0 }
    }
}

/// What a thread of this process, by its native id, has used of a processor.
pub fn used_by(native_id: u32) -> Option<Nanos> {
    // The kernel's MAKE_THREAD_CPUCLOCK: the scheduler's clock (2) of a thread (4).
    let clock = (!native_id).wrapping_shl(3) | 2 | 4;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    let place = &raw mut time as usize;
    let clock = clock as i32 as isize as usize;
    // SAFETY: the kernel writes `time`.
    let done = unsafe { syscall(number::CLOCK_GETTIME, [clock, place, 0, 0, 0, 0]) };
    (done == 0).then(|| time.nanos())
}

/// The cores that a thread may run on; 0: the calling one.
pub fn affinity_of(thread: u32) -> Option<Cores> {
    let mut cores: Cores = [0; 16];
    let (thread, bytes) = (thread as usize, size_of::<Cores>());
    let place = cores.as_mut_ptr() as usize;
    // SAFETY: the kernel writes at most `bytes` to `cores`.
    let got = unsafe { syscall(number::SCHED_GETAFFINITY, [thread, bytes, place, 0, 0, 0]) };
    (got > 0).then_some(cores)
}

pub fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(number::GETPID, [0; 6]) as u32 }
}

pub fn parent_pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(number::GETPPID, [0; 6]) as u32 }
}

pub fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(number::GETTID, [0; 6]) as u32 }
}

/// A number that no other thread of the process has while the calling one lives: where the C library
/// keeps its thread-local data, and what the ABI of both processors names so.
pub fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: a read of the calling thread's own register, or of the word that it points to.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

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

/// The name that the kernel knows the calling thread by, zero-padded.
pub fn thread_name() -> [u8; 16] {
    const PR_GET_NAME: usize = 16;
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { syscall(number::PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// On how many processors this process may run; at least 1.
pub fn cores() -> u32 {
    let mut mask = [0u64; 128];
    let bytes = size_of_val(&mask);
    // SAFETY: the kernel writes at most `bytes`.
    let written = unsafe {
        syscall(number::SCHED_GETAFFINITY, [0, bytes, mask.as_mut_ptr() as usize, 0, 0, 0])
    };
    if written <= 0 {
        return 1;
    }
    mask.iter().map(|word| word.count_ones()).sum::<u32>().max(1)
}

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

fn map(bytes: usize, flags: usize, file: usize) -> Option<*mut u8> {
    const READ_WRITE: usize = 3;
    // SAFETY: a new mapping at a place of the kernel's choice harms nothing.
    let at = unsafe { syscall(number::MMAP, [0, bytes, READ_WRITE, flags, file, 0]) };
    (at > 0).then_some(at as *mut u8)
}

/// Makes a new file of `bytes` and maps it; `None` when it exists or anything fails. `path` ends
/// with a zero byte.
pub fn map_new_file(path: &[u8], bytes: usize) -> Option<*mut u8> {
    const AT_FDCWD: usize = -100isize as usize;
    const CREATE_NEW: usize = 0o2 | 0o100 | 0o200 | 0o2_000_000;
    const SHARED: usize = 1;
    if path.last() != Some(&0) {
        return None;
    }
    // SAFETY: the path is zero-terminated.
    let file = unsafe {
        syscall(number::OPENAT, [AT_FDCWD, path.as_ptr() as usize, CREATE_NEW, 0o644, 0, 0])
    };
    let file = usize::try_from(file).ok()?;
    // SAFETY: the descriptor is ours.
    let sized = unsafe { syscall(number::FTRUNCATE, [file, bytes, 0, 0, 0, 0]) } == 0;
    let at = if sized { map(bytes, SHARED, file) } else { None };
    // SAFETY: the descriptor is ours, and a mapping outlives it.
    unsafe { syscall(number::CLOSE, [file, 0, 0, 0, 0, 0]) };
    at
}

/// Reads a file into `place`, as far as there is room; how many bytes. `path` ends with a zero byte.
pub fn read_file(path: &[u8], place: &mut [u8]) -> usize {
    const AT_FDCWD: usize = -100isize as usize;
    const READ_ONLY: usize = 0o2_000_000;
    if path.last() != Some(&0) {
        return 0;
    }
    // SAFETY: the path is zero-terminated.
    let file =
        unsafe { syscall(number::OPENAT, [AT_FDCWD, path.as_ptr() as usize, READ_ONLY, 0, 0, 0]) };
    let Ok(file) = usize::try_from(file) else { return 0 };
    let mut length = 0;
    // Some of the kernel's files come in pieces.
    while let Some(rest) = place.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let (at, room) = (rest.as_mut_ptr() as usize, rest.len());
        // SAFETY: the kernel writes at most `room` bytes to what is left; the descriptor is ours.
        let read = unsafe { syscall(number::READ, [file, at, room, 0, 0, 0]) };
        match usize::try_from(read) {
            Ok(read) if read > 0 => length += read.min(room),
            _ => break,
        }
    }
    // SAFETY: the descriptor is ours.
    unsafe { syscall(number::CLOSE, [file, 0, 0, 0, 0, 0]) };
    length
}

/// Copies memory of this process that may not be there, as far as it is; how many bytes.
///
/// # Safety
/// `to` is `bytes` bytes that nobody else writes.
#[cfg(feature = "mutexes")]
pub unsafe fn copy_memory(from: usize, to: *mut u8, bytes: usize) -> usize {
    let here = [to as usize, bytes];
    let there = [from, bytes];
    let (local, remote) = (here.as_ptr() as usize, there.as_ptr() as usize);
    // SAFETY: the kernel writes to the place only and answers a bad address with an error.
    let read =
        unsafe { syscall(number::PROCESS_VM_READV, [pid() as usize, local, 1, remote, 1, 0]) };
    usize::try_from(read).unwrap_or(0)
}

/// Reads memory of this process that may not be there.
pub fn peek<const WORDS: usize>(address: usize) -> Option<[u64; WORDS]> {
    let mut words = [0u64; WORDS];
    let bytes = size_of_val(&words);
    let here = [words.as_mut_ptr() as usize, bytes];
    let there = [address, bytes];
    let (local, remote) = (here.as_ptr() as usize, there.as_ptr() as usize);
    // SAFETY: the kernel writes to `words` only and answers a bad address with an error.
    let read =
        unsafe { syscall(number::PROCESS_VM_READV, [pid() as usize, local, 1, remote, 1, 0]) };
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

/// Ends the program at once, with a signal that leaves a core file.
pub fn trap() -> ! {
    // SAFETY: the instruction raises SIGILL or SIGTRAP and does not return.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("ud2", options(noreturn));
        #[cfg(target_arch = "aarch64")]
        asm!("brk #1", options(noreturn));
    }
}
