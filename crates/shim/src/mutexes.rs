//! A lock profile: which mutexes the program takes, from where, how often it has to wait.
//!
//! Each function that takes a lock is a few instructions that pass on, beside its arguments, where
//! it was called from, the stack pointer and the frame pointer. What follows tries the lock first,
//! as the C library does itself: if it is not free the acquisition is contended. Counts are kept in
//! a mapped file (`deconvoy_trace::mutexes`), in a table of the calling thread, so that threads do
//! not get in one another's way. Now and then, before the lock is taken, a piece of the stack is
//! copied, from which the reader finds the callers: nothing is unwound here.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use deconvoy_gil::System;
use deconvoy_trace::mutexes::{
    BLOCKS, BLOCKS_AT, FILE_BYTES, Header, MAGIC, MAPS_AT, MAPS_BYTES, SAMPLES, SAMPLES_AT, SITES,
    STACK_BYTES, Sample, Site, VERSION, kind,
};

use crate::config;
use crate::real::{self, Key, Real};
use crate::sys::{self, Linux};
use crate::tracing::Path;

/// The mapped file; null: no profile is made. Set once by the constructor, and anew in a child.
static FILE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Where a thread keeps the number of its table, from 1 on.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Code is looked for in the maps once for each of so many pieces of this size.
const REGIONS: usize = 64;
const REGION_BITS: u32 = 21;
static SEEN: [AtomicU64; REGIONS] = [const { AtomicU64::new(0) }; REGIONS];
static MAPPING: AtomicU32 = AtomicU32::new(0);

/// Sites are looked for in so many places of a table.
const PROBES: usize = 16;

/// The stack of every acquisition up to this one is a sample when its number is a power of two.
const LAST_SAMPLE: u64 = 1 << 12;

const EBUSY: c_int = 16;

/// glibc has room for the values of the first keys in each thread's own descriptor.
const KEYS_AT_HAND: Key = 32;

unsafe extern "C" fn keep(_: *mut c_void) {}

/// Begins a profile, if one is wanted.
pub fn begin() {
    if config::get().mutexes_folder.is_empty() {
        return;
    }
    // In a program without threads an older glibc has not all of what is called.
    if !real::complete() {
        return;
    }
    let Some(key) = real::key_create(keep) else { return };
    // For later ones the C library allocates, which a lock inside an allocator cannot bear.
    if key >= KEYS_AT_HAND {
        return;
    }
    KEY.store(key, Ordering::Relaxed);
    open();
    real::at_fork_in_child(forked);
}

/// A child has a file of its own: in its parent's it would count what the parent did.
unsafe extern "C" fn forked() {
    FILE.store(core::ptr::null_mut(), Ordering::Relaxed);
    MAPPING.store(0, Ordering::Relaxed);
    for seen in &SEEN {
        seen.store(0, Ordering::Relaxed);
    }
    open();
}

fn open() {
    let mut path = Path::new();
    path.push(config::get().mutexes_folder);
    path.push(b"/");
    path.push_number(u64::from(sys::pid()));
    path.push(b"-");
    path.push_number(sys::unix_ns() / 1_000);
    path.push(b".locks\0");
    let Some(file) = path.bytes().and_then(|path| sys::map_new_file(path, FILE_BYTES)) else {
        return;
    };
    // SAFETY: a fresh mapping of that size, page-aligned; nobody else knows it yet.
    unsafe {
        let header = file.cast::<Header>();
        (&raw mut (*header).version).write(VERSION);
        (&raw mut (*header).pid).write(sys::pid());
        (&raw mut (*header).magic).write(MAGIC);
    }
    FILE.store(file, Ordering::Release);
}

/// The file, while it is mapped: for good.
#[derive(Clone, Copy)]
struct Profile(*mut u8);

impl Profile {
    fn get() -> Option<Profile> {
        // Acquire pairs with the Release in `open`.
        let file = FILE.load(Ordering::Acquire);
        (!file.is_null()).then_some(Profile(file))
    }

    fn header(&self) -> &'static Header {
        // SAFETY: the mapping begins with one, stays, and is shared by atomics from now on.
        unsafe { &*self.0.cast::<Header>() }
    }

    /// The table of the calling thread.
    fn block(self) -> usize {
        let key: Key = KEY.load(Ordering::Relaxed);
        let number = real::get_specific(key);
        if number != 0 {
            return number - 1;
        }
        let number = self.header().threads.fetch_add(1, Ordering::Relaxed) as usize % BLOCKS;
        real::set_specific(key, number + 1);
        number
    }

    /// Where a thread counts what it takes from one place; `None`: there is no room.
    fn site(self, mutex: u64, caller: u64, how: u64) -> Option<&'static Site> {
        let key = mix(mutex, caller, how);
        let first = self.block() * SITES;
        for probe in 0..PROBES {
            let place = first + (key as usize).wrapping_add(probe) % SITES;
            let at = BLOCKS_AT + place * size_of::<Site>();
            // SAFETY: a place in the mapping, aligned, shared by atomics; all zeroes are a site.
            let site = unsafe { &*self.0.add(at).cast::<Site>() };
            let found = site.key.load(Ordering::Relaxed);
            if found == key {
                return Some(site);
            }
            if found == 0 {
                let taken = site.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
                if taken.is_ok() {
                    site.mutex.store(mutex, Ordering::Relaxed);
                    site.caller.store(caller, Ordering::Relaxed);
                    site.kind.store(how, Ordering::Relaxed);
                    self.note_code(caller);
                    self.note_code(mutex);
                }
                // A thread that shares the table may have taken it for the same site.
                if taken.is_ok() || taken == Err(key) {
                    return Some(site);
                }
            }
        }
        self.header().uncounted.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Copies the maps once more, if this is an address that none was made for.
    #[cold]
    fn note_code(self, address: u64) {
        let region = (address >> REGION_BITS) + 1;
        for seen in &SEEN {
            match seen.compare_exchange(0, region, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) if found == region => return,
                Err(_) => {}
            }
        }
        if MAPPING.swap(1, Ordering::Acquire) != 0 {
            return;
        }
        let header = self.header();
        let used = header.maps.load(Ordering::Relaxed) as usize;
        if used < MAPS_BYTES {
            // SAFETY: what is left of the place for maps, in the mapping; `MAPPING` keeps others
            // off, and what is before `header.maps` is not touched.
            let place = unsafe {
                core::slice::from_raw_parts_mut(self.0.add(MAPS_AT + used), MAPS_BYTES - used)
            };
            let read = sys::read_file(b"/proc/self/maps\0", place);
            header.maps.store((used + read) as u64, Ordering::Relaxed);
        }
        MAPPING.store(0, Ordering::Release);
    }

    /// Keeps a piece of the stack.
    #[cold]
    fn sample(self, site: &Site, caller: u64, sp: usize, fp: usize) {
        let number = self.header().samples.fetch_add(1, Ordering::Relaxed) as usize;
        if number >= SAMPLES {
            self.header().samples.store(SAMPLES as u32, Ordering::Relaxed);
            return;
        }
        let at = SAMPLES_AT + number * size_of::<Sample>();
        // SAFETY: a place in the mapping, aligned, whose number nobody else has; the stack is copied
        // by the kernel, which writes to the sample's own bytes.
        unsafe {
            let place = self.0.add(at).cast::<Sample>();
            let stack = (&raw mut (*place).stack).cast::<u8>();
            let bytes = sys::copy_memory(sp, stack, STACK_BYTES);
            (*place).caller.store(caller, Ordering::Relaxed);
            (*place).sp.store(sp as u64, Ordering::Relaxed);
            (*place).fp.store(fp as u64, Ordering::Relaxed);
            (*place).bytes.store(bytes as u64, Ordering::Relaxed);
            (*place).key.store(site.key.load(Ordering::Relaxed), Ordering::Release);
        }
    }
}

/// A number that two different sites have with a probability of 2^-64; never 0.
fn mix(mutex: u64, caller: u64, how: u64) -> u64 {
    let mut mixed = mutex.rotate_left(32) ^ caller ^ (how << 61);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9fb2_1c65_1e98_df25);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9fb2_1c65_1e98_df25);
    (mixed ^ (mixed >> 28)) | 1
}

/// Where a lock function was called from.
#[derive(Clone, Copy)]
struct From {
    caller: usize,
    sp: usize,
    fp: usize,
}

/// Takes a lock: tries first, and waits if it has to. Both answer as the C library's do.
fn take(
    lock: *mut c_void,
    how: u64,
    from: From,
    attempt: impl FnOnce() -> Option<c_int>,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let Some(profile) = Profile::get() else { return wait() };
    let Some(site) = profile.site(lock as u64, from.caller as u64, how) else { return wait() };
    let before = site.taken.fetch_add(1, Ordering::Relaxed);
    if before <= LAST_SAMPLE && before & before.wrapping_sub(1) == 0 {
        profile.sample(site, from.caller as u64, from.sp, from.fp);
    }
    let Some(tried) = attempt() else { return wait() };
    if tried != EBUSY {
        return tried;
    }
    site.contended.fetch_add(1, Ordering::Relaxed);
    let begun = Linux.now().0;
    let answer = wait();
    site.waited_ns.fetch_add(Linux.now().0.saturating_sub(begun), Ordering::Relaxed);
    answer
}

type One = unsafe extern "C" fn(*mut c_void) -> c_int;
type Two = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
type Three = unsafe extern "C" fn(*mut c_void, c_int, *const c_void) -> c_int;

/// The attempt of a lock, if the C library has one.
///
/// # Safety
/// `real` is a function of type `One`, and the lock is one that it takes.
unsafe fn attempt(real: &Real, lock: *mut c_void) -> Option<c_int> {
    // SAFETY: as the caller says.
    (!real.get().is_null()).then(|| unsafe { real.typed::<One>()(lock) })
}

/// An exported function that passes on where it was called from, behind its own arguments.
macro_rules! profiled {
    ($name:ident, $counted:path, $caller:literal, $sp:literal, $fp:literal,
     $caller_arm:literal, $sp_arm:literal, $fp_arm:literal) => {
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                concat!("mov ", $caller, ", [rsp]"),
                concat!("lea ", $sp, ", [rsp + 8]"),
                concat!("mov ", $fp, ", rbp"),
                "jmp {counted}",
                counted = sym $counted,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                concat!("mov ", $caller_arm, ", x30"),
                concat!("mov ", $sp_arm, ", sp"),
                concat!("mov ", $fp_arm, ", x29"),
                "b {counted}",
                counted = sym $counted,
            );
        }
    };
}

/// A function with one argument: its trampoline, and what it does.
macro_rules! lock {
    ($name:ident, $counted:ident, $how:expr, $real:literal, $attempt:literal) => {
        profiled!($name, $counted, "rsi", "rdx", "rcx", "x1", "x2", "x3");

        unsafe extern "C" fn $counted(
            lock: *mut c_void,
            caller: usize,
            sp: usize,
            fp: usize,
        ) -> c_int {
            static WAIT: Real = Real::new($real);
            static ATTEMPT: Real = Real::new($attempt);
            let from = From { caller, sp, fp };
            // SAFETY: the types are POSIX's, and the lock is the caller's; whoever calls this function
            // was linked to the C library's of the same name.
            let wait = || unsafe { WAIT.typed::<One>()(lock) };
            // SAFETY: likewise.
            take(lock, $how, from, || unsafe { attempt(&ATTEMPT, lock) }, wait)
        }
    };
}

lock!(pthread_mutex_lock, mutex_lock, kind::MUTEX, c"pthread_mutex_lock", c"pthread_mutex_trylock");
lock!(
    pthread_rwlock_rdlock,
    read_lock,
    kind::READ,
    c"pthread_rwlock_rdlock",
    c"pthread_rwlock_tryrdlock"
);
lock!(
    pthread_rwlock_wrlock,
    write_lock,
    kind::WRITE,
    c"pthread_rwlock_wrlock",
    c"pthread_rwlock_trywrlock"
);
lock!(pthread_spin_lock, spin_lock, kind::SPIN, c"pthread_spin_lock", c"pthread_spin_trylock");

profiled!(pthread_mutex_trylock, try_lock, "rsi", "rdx", "rcx", "x1", "x2", "x3");

/// What fails is no acquisition, and nobody waits.
unsafe extern "C" fn try_lock(lock: *mut c_void, caller: usize, sp: usize, fp: usize) -> c_int {
    static REAL: Real = Real::new(c"pthread_mutex_trylock");
    // SAFETY: the type is POSIX's, and the lock is the caller's.
    let answer = unsafe { REAL.typed::<One>()(lock) };
    if answer == EBUSY {
        return answer;
    }
    let profile = Profile::get();
    if let Some((profile, site)) =
        profile.and_then(|one| Some((one, one.site(lock as u64, caller as u64, kind::MUTEX)?)))
        && site.taken.fetch_add(1, Ordering::Relaxed) == 0
    {
        profile.sample(site, caller as u64, sp, fp);
    }
    answer
}

profiled!(pthread_mutex_timedlock, timed_lock, "rdx", "rcx", "r8", "x2", "x3", "x4");

unsafe extern "C" fn timed_lock(
    lock: *mut c_void,
    until: *const c_void,
    caller: usize,
    sp: usize,
    fp: usize,
) -> c_int {
    static WAIT: Real = Real::new(c"pthread_mutex_timedlock");
    static ATTEMPT: Real = Real::new(c"pthread_mutex_trylock");
    let from = From { caller, sp, fp };
    // SAFETY: the types are POSIX's; lock and time are the caller's.
    let wait = || unsafe { WAIT.typed::<Two>()(lock, until) };
    // SAFETY: likewise.
    take(lock, kind::MUTEX, from, || unsafe { attempt(&ATTEMPT, lock) }, wait)
}

profiled!(pthread_mutex_clocklock, clock_lock, "rcx", "r8", "r9", "x3", "x4", "x5");

unsafe extern "C" fn clock_lock(
    lock: *mut c_void,
    clock: c_int,
    until: *const c_void,
    caller: usize,
    sp: usize,
    fp: usize,
) -> c_int {
    static WAIT: Real = Real::new(c"pthread_mutex_clocklock");
    static ATTEMPT: Real = Real::new(c"pthread_mutex_trylock");
    let from = From { caller, sp, fp };
    // SAFETY: the types are glibc's; lock and time are the caller's.
    let wait = || unsafe { WAIT.typed::<Three>()(lock, clock, until) };
    // SAFETY: likewise.
    take(lock, kind::MUTEX, from, || unsafe { attempt(&ATTEMPT, lock) }, wait)
}
