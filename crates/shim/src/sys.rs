//! System calls, without a C library in between: none of them touches `errno`.

mod memory;
mod sleep;

use core::arch::asm;

use deconvoy_gil::{AtomicU32, Cores, System};
use deconvoy_policy::Nanos;

#[cfg(feature = "mutexes")]
pub use self::memory::copy_memory;
use self::memory::map;
pub use self::memory::{map_anonymous, peek, zero_pages};
pub use self::sleep::{interrupt, keep_interrupts, sleep_exactly, wait_readable};

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

/// [`System::futex_wait`] with a deadline, and whether a signal ended it.
pub fn wait_interruptibly(word: &AtomicU32, expected: u32, deadline: Nanos) -> bool {
    futex_wait(word, expected, Some(deadline)) == -(EINTR as isize)
}

pub const EINTR: i32 = 4;
pub const ENOSYS: i32 = 38;

fn futex_wait(word: &AtomicU32, expected: u32, deadline: Option<Nanos>) -> isize {
    let time = deadline.map(Timespec::at);
    let time = time.as_ref().map_or(0, |time| &raw const *time as usize);
    let op = FUTEX_WAIT_BITSET | FUTEX_PRIVATE;
    let word = &raw const *word as usize;
    // SAFETY: the word and the deadline outlive the call, which reads both.
    unsafe { syscall(number::FUTEX, [word, op, expected as usize, time, 0, u32::MAX as usize]) }
}

impl System for Linux {
    fn now(&self) -> Nanos {
        clock(CLOCK_MONOTONIC)
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, deadline: Option<Nanos>) {
        futex_wait(word, expected, deadline);
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
        allow(0, cores)
    }
}

/// As Linux is to another thread of this process, with this native id.
#[derive(Clone, Copy)]
pub struct OfThread(pub u32);

impl System for OfThread {
    fn now(&self) -> Nanos {
        Linux.now()
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, deadline: Option<Nanos>) {
        Linux.futex_wait(word, expected, deadline);
    }

    fn futex_wake(&self, word: &AtomicU32, count: u32) {
        Linux.futex_wake(word, count);
    }

    fn allowed(&self) -> Option<Cores> {
        affinity_of(self.0)
    }

    fn allow(&self, cores: &Cores) -> bool {
        allow(self.0, cores)
    }
}

/// Lets a thread run on these cores only; 0: the calling one. Whether it does.
fn allow(thread: u32, cores: &Cores) -> bool {
    let (bytes, place) = (size_of::<Cores>(), cores.as_ptr() as usize);
    // SAFETY: the kernel reads `bytes` of `cores`.
    unsafe { syscall(number::SCHED_SETAFFINITY, [thread as usize, bytes, place, 0, 0, 0]) == 0 }
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
