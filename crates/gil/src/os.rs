//! Linux, through the C library, for locks of our own (feature `os`). The preloaded library has its
//! own way there, which goes without one.

use std::mem::MaybeUninit;

use deconvoy_policy::{Nanos, WaiterId};

use crate::primitive::Ordering;
use crate::{AtomicU32, Cores, System};

/// The system, as the threads of one lock see it.
#[derive(Clone, Copy, Debug)]
pub struct Os<'a> {
    /// The native id of each thread, by its number at the lock; 0: not known.
    pub native_ids: &'a [AtomicU32],
}

fn clock(id: libc::clockid_t) -> Option<Nanos> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the kernel writes the time, whose place is valid, if the call succeeds.
    let time = unsafe {
        if libc::clock_gettime(id, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()))
}

/// What a thread of this process has used of a processor; `None`: there is no such thread.
fn used_by(native_id: u32) -> Option<Nanos> {
    // As `pthread_getcpuclockid` has it: the thread's id, and that its scheduler's clock is meant.
    const OF_A_THREAD: libc::clockid_t = 6;
    clock(!native_id.cast_signed() << 3 | OF_A_THREAD)
}

/// The wall clock.
pub fn unix_time() -> Nanos {
    clock(libc::CLOCK_REALTIME).unwrap_or(Nanos::ZERO)
}

/// The calling thread, as the kernel numbers it.
pub fn native_id() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

impl System for Os<'_> {
    fn now(&self) -> Nanos {
        clock(libc::CLOCK_MONOTONIC).unwrap_or(Nanos::ZERO)
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, deadline: Option<Nanos>) {
        const ANY: u32 = !0;
        let deadline = deadline.map(|at| libc::timespec {
            tv_sec: (at.0 / 1_000_000_000).cast_signed(),
            tv_nsec: (at.0 % 1_000_000_000).cast_signed(),
        });
        let at = deadline.as_ref().map_or(std::ptr::null(), |at| &raw const *at);
        let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the time outlive the call.
        unsafe {
            libc::syscall(libc::SYS_futex, word, operation, expected, at, 0usize, ANY);
        }
    }

    fn futex_wake(&self, word: &AtomicU32, count: u32) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: only the word's address is used.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, count) };
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn core(&self) -> Option<u32> {
        // SAFETY: the call has no arguments.
        u32::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    fn used_by(&self, who: WaiterId) -> Option<Nanos> {
        let native_id = self.native_ids.get(who.0 as usize)?.load(Ordering::Relaxed);
        if native_id == 0 { None } else { used_by(native_id) }
    }

    fn allowed(&self) -> Option<Cores> {
        let mut cores: Cores = [0; 16];
        // SAFETY: the kernel writes as many bytes as it is told there are.
        let written =
            unsafe { libc::sched_getaffinity(0, size_of::<Cores>(), (&raw mut cores).cast()) };
        (written == 0).then_some(cores)
    }

    fn allow(&self, cores: &Cores) -> bool {
        // SAFETY: the kernel reads as many bytes as it is told there are.
        unsafe { libc::sched_setaffinity(0, size_of::<Cores>(), (&raw const *cores).cast()) == 0 }
    }
}

/// A `pthread_mutex_t`, as it is.
pub struct PthreadMutex(Box<std::cell::UnsafeCell<libc::pthread_mutex_t>>);

// SAFETY: it is made to be shared, and its place in memory stays the same.
unsafe impl Sync for PthreadMutex {}
// SAFETY: as above; nobody holds it when it moves.
unsafe impl Send for PthreadMutex {}

/// The mutex, held by the calling thread.
pub struct PthreadHeld<'m> {
    mutex: &'m PthreadMutex,
    /// Only the thread that locked it may unlock it.
    _here: std::marker::PhantomData<*const ()>,
}

impl Default for PthreadMutex {
    fn default() -> PthreadMutex {
        PthreadMutex(Box::new(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)))
    }
}

impl PthreadMutex {
    pub fn lock(&self) -> PthreadHeld<'_> {
        // SAFETY: initialised, and where it was then.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        PthreadHeld { mutex: self, _here: std::marker::PhantomData }
    }
}

impl Drop for PthreadHeld<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread locked it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.0.get()) };
    }
}
