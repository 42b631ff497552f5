//! The C library's own functions behind the ones that this library interposes, and the few that
//! it must not link to by a version newer than the oldest system it loads on.

use core::ffi::{c_int, c_void};
use core::mem::transmute_copy;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::loader::{self, symbol};

/// glibc has two condition variables on x86-64, and without a version `dlsym` finds the old one,
/// which knows nothing of the new one's layout.
#[cfg(target_arch = "x86_64")]
const COND_VERSION: &core::ffi::CStr = c"GLIBC_2.3.2";
#[cfg(target_arch = "aarch64")]
const COND_VERSION: &core::ffi::CStr = c"GLIBC_2.17";

/// The one before took no size.
#[cfg(target_arch = "x86_64")]
const AFFINITY_VERSION: &core::ffi::CStr = c"GLIBC_2.3.4";
#[cfg(target_arch = "aarch64")]
const AFFINITY_VERSION: &core::ffi::CStr = c"GLIBC_2.17";

pub fn is_glibc() -> bool {
    !symbol(c"gnu_get_libc_version").is_null()
}

/// A function of the C library's, looked up when first needed: constructors of other libraries
/// may run before ours.
pub struct Real {
    name: &'static core::ffi::CStr,
    /// Where there is more than one.
    version: Option<&'static core::ffi::CStr>,
    /// It may be in a library of its own.
    is_of_threads: bool,
    at: AtomicPtr<c_void>,
}

impl Real {
    pub const fn new(name: &'static core::ffi::CStr) -> Real {
        let at = AtomicPtr::new(core::ptr::null_mut());
        Real { name, version: None, is_of_threads: false, at }
    }

    const fn versioned(name: &'static core::ffi::CStr, version: &'static core::ffi::CStr) -> Real {
        Real { version: Some(version), ..Real::new(name) }
    }

    const fn of_threads(name: &'static core::ffi::CStr) -> Real {
        Real { is_of_threads: true, ..Real::new(name) }
    }

    const fn cond(name: &'static core::ffi::CStr) -> Real {
        Real::versioned(name, COND_VERSION)
    }

    pub fn get(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Relaxed);
        if at.is_null() { self.look_up() } else { at }
    }

    /// Looks where it need not load a library for it.
    pub fn look_ahead(&self) {
        self.at.store(loader::next(self.name, self.version), Ordering::Relaxed);
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let at = if self.is_of_threads {
            loader::next_of_threads(self.name)
        } else {
            loader::next(self.name, self.version)
        };
        self.at.store(at, Ordering::Relaxed);
        at
    }

    /// # Safety
    /// `F` is a function pointer of the type that the C library gives this function, and the
    /// function is there.
    pub unsafe fn typed<F>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let at = self.get();
        // SAFETY: as the caller says; the sizes are equal.
        unsafe { transmute_copy(&at) }
    }
}

pub static COND_INIT: Real = Real::cond(c"pthread_cond_init");
pub static COND_DESTROY: Real = Real::cond(c"pthread_cond_destroy");
pub static COND_SIGNAL: Real = Real::cond(c"pthread_cond_signal");
pub static COND_WAIT: Real = Real::cond(c"pthread_cond_wait");
pub static COND_TIMEDWAIT: Real = Real::cond(c"pthread_cond_timedwait");
pub static SEM_POST: Real = Real::of_threads(c"sem_post");
pub static SEM_WAIT: Real = Real::of_threads(c"sem_wait");
pub static SEM_TIMEDWAIT: Real = Real::of_threads(c"sem_timedwait");
/// In glibc 2.30 and later.
pub static SEM_CLOCKWAIT: Real = Real::of_threads(c"sem_clockwait");
pub static SET_AFFINITY: Real = Real::versioned(c"sched_setaffinity", AFFINITY_VERSION);
pub static MUTEX_UNLOCK: Real = Real::new(c"pthread_mutex_unlock");
pub static EPOLL_WAIT: Real = Real::new(c"epoll_wait");
pub static RUN_NODE: Real = Real::new(c"ruby_run_node");
static THREAD_CREATE: Real = Real::new(c"pthread_create");
static MUTEX_LOCK: Real = Real::new(c"pthread_mutex_lock");
static MUTEX_TRYLOCK: Real = Real::new(c"pthread_mutex_trylock");
static KEY_CREATE: Real = Real::new(c"pthread_key_create");
static GETSPECIFIC: Real = Real::new(c"pthread_getspecific");
static SETSPECIFIC: Real = Real::new(c"pthread_setspecific");
static THREAD_SELF: Real = Real::new(c"pthread_self");
static REGISTER_ATFORK: Real = Real::new(c"__register_atfork");

/// Whether all functions that a served lock needs were found.
pub fn complete() -> bool {
    [
        &COND_SIGNAL,
        &COND_WAIT,
        &COND_TIMEDWAIT,
        &MUTEX_LOCK,
        &MUTEX_TRYLOCK,
        &MUTEX_UNLOCK,
        &KEY_CREATE,
        &GETSPECIFIC,
        &SETSPECIFIC,
        &SET_AFFINITY,
        &REGISTER_ATFORK,
    ]
    .into_iter()
    .all(|real| !real.get().is_null())
}

/// A `pthread_mutex_t`.
#[derive(Clone, Copy)]
pub struct Mutex(pub *mut c_void);

impl deconvoy_gil::Guard for Mutex {
    unsafe fn lock(&self) {
        // SAFETY: the type is POSIX's, `complete` found it, and the mutex is the interpreter's.
        unsafe { MUTEX_LOCK.typed::<unsafe extern "C" fn(*mut c_void) -> c_int>()(self.0) };
    }

    unsafe fn try_lock(&self) -> bool {
        // SAFETY: as in `lock`.
        unsafe { MUTEX_TRYLOCK.typed::<unsafe extern "C" fn(*mut c_void) -> c_int>()(self.0) == 0 }
    }

    unsafe fn unlock(&self) {
        // SAFETY: as in `lock`.
        unsafe { MUTEX_UNLOCK.typed::<unsafe extern "C" fn(*mut c_void) -> c_int>()(self.0) };
    }
}

impl Mutex {
    /// Whether the calling thread holds it, as far as its words say so where glibc keeps its owner.
    /// If not, the layout is another than is thought.
    ///
    /// # Safety
    /// The calling thread holds it.
    pub unsafe fn is_held_here(&self) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.owner() == crate::sys::thread_id() }
    }

    /// The native id of the thread that holds it, where glibc keeps it; 0: nobody.
    ///
    /// # Safety
    /// It is a mutex that outlives the call.
    pub unsafe fn owner(&self) -> u32 {
        const OWNER: usize = 2;
        // SAFETY: a `pthread_mutex_t` has ten such words and more, and outlives the call.
        let owner = unsafe { &*self.0.cast::<AtomicU32>().add(OWNER) };
        owner.load(Ordering::Relaxed)
    }

    /// Makes it spin for a moment before it sleeps, as `PTHREAD_MUTEX_ADAPTIVE_NP` says. A waiter
    /// that asks sets the request with the lock's mutex held, and a holder on another core sees it
    /// and comes for the mutex at once: asleep, it would be woken on the waiter's core.
    ///
    /// The kind's place is part of glibc's ABI (its static initialisers have it), both kinds are
    /// unlocked in the same way, and glibc itself changes kinds of mutexes in use (lock elision).
    ///
    /// # Safety
    /// It is a mutex that the interpreter has initialised.
    pub unsafe fn spin_first(&self) {
        const KIND: usize = 4;
        const NORMAL: u32 = 0;
        const ADAPTIVE: u32 = 3;
        // SAFETY: as in `is_held_here`.
        let kind = unsafe { &*self.0.cast::<AtomicU32>().add(KIND) };
        let _ = kind.compare_exchange(NORMAL, ADAPTIVE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Wakes one that waits on a condition variable.
pub fn signal(cond: usize) {
    // SAFETY: the type is POSIX's; the variable is one of Ruby's threads', which Ruby keeps.
    unsafe {
        COND_SIGNAL.typed::<unsafe extern "C" fn(*mut c_void) -> c_int>()(cond as *mut c_void)
    };
}

/// # Safety
/// As for `sem_post`.
pub unsafe fn post(semaphore: *mut c_void) {
    // SAFETY: the type is POSIX's; the rest is the caller's.
    unsafe { SEM_POST.typed::<unsafe extern "C" fn(*mut c_void) -> c_int>()(semaphore) };
}

/// What a wait says whose time is over.
pub const ETIMEDOUT: c_int = 110;

/// # Safety
/// As for `pthread_cond_wait`.
pub unsafe fn wait(cond: *mut c_void, mutex: *mut c_void) -> c_int {
    type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
    // SAFETY: the type is POSIX's; the rest is the caller's.
    unsafe { COND_WAIT.typed::<Wait>()(cond, mutex) }
}

/// # Safety
/// As for `pthread_cond_timedwait`.
pub unsafe fn timed_wait(
    cond: *mut c_void,
    mutex: *mut c_void,
    deadline: &crate::sys::Timespec,
) -> c_int {
    type Wait =
        unsafe extern "C" fn(*mut c_void, *mut c_void, *const crate::sys::Timespec) -> c_int;
    // SAFETY: the type is POSIX's; the rest is the caller's.
    unsafe { COND_TIMEDWAIT.typed::<Wait>()(cond, mutex, deadline) }
}

/// # Safety
/// As for `epoll_wait`.
pub unsafe fn epoll_wait(of: c_int, events: *mut c_void, most: c_int, limit_ms: c_int) -> c_int {
    type Wait = unsafe extern "C" fn(c_int, *mut c_void, c_int, c_int) -> c_int;
    // SAFETY: the type is Linux's; the rest is the caller's.
    unsafe { EPOLL_WAIT.typed::<Wait>()(of, events, most, limit_ms) }
}

pub type Key = u32;

pub fn key_create(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<Key> {
    type Create =
        unsafe extern "C" fn(*mut Key, Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
    let mut key = 0;
    // SAFETY: the type is POSIX's, and `complete` found it.
    (unsafe { KEY_CREATE.typed::<Create>()(&raw mut key, Some(destructor)) } == 0).then_some(key)
}

pub fn get_specific(key: Key) -> usize {
    // SAFETY: the type is POSIX's, `complete` found it, and the key is ours.
    unsafe { GETSPECIFIC.typed::<unsafe extern "C" fn(Key) -> *mut c_void>()(key) as usize }
}

pub fn set_specific(key: Key, value: usize) -> bool {
    // SAFETY: as in `get_specific`.
    unsafe {
        SETSPECIFIC.typed::<unsafe extern "C" fn(Key, *const c_void) -> c_int>()(
            key,
            value as *const c_void,
        ) == 0
    }
}

/// The calling thread's `pthread_t`.
pub fn thread_self() -> u64 {
    // SAFETY: the type is that of any C library with threads.
    unsafe { THREAD_SELF.typed::<unsafe extern "C" fn() -> u64>()() }
}

/// `pthread_create`, as a function pointer of type `F`; `None` when there is none.
pub fn thread_create<F>() -> Option<F> {
    // SAFETY: `F` is the type that POSIX gives it; checked for the one caller, `names`.
    (!THREAD_CREATE.get().is_null()).then(|| unsafe { THREAD_CREATE.typed() })
}

/// # Safety
/// As for `sched_setaffinity`.
pub unsafe fn set_affinity(thread: c_int, bytes: usize, mask: *const c_void) -> c_int {
    type Set = unsafe extern "C" fn(c_int, usize, *const c_void) -> c_int;
    // SAFETY: the type is glibc's, where this is called; the rest is the caller's.
    unsafe { SET_AFFINITY.typed::<Set>()(thread, bytes, mask) }
}

/// Has `child` called in a child after each fork.
pub fn at_fork_in_child(child: unsafe extern "C" fn()) {
    type Handler = Option<unsafe extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
    // SAFETY: the type is glibc's (what `pthread_atfork` calls), and `complete` found it; a null
    // library handle says that the handler stays.
    unsafe {
        REGISTER_ATFORK.typed::<Register>()(None, None, Some(child), core::ptr::null_mut());
    }
}

pub fn py_version() -> Option<&'static core::ffi::CStr> {
    let get = symbol(c"Py_GetVersion");
    if get.is_null() {
        return None;
    }
    // SAFETY: CPython gives this function this type in every version, and it may be called before
    // initialisation.
    let text = unsafe {
        let get: unsafe extern "C" fn() -> *const core::ffi::c_char = transmute_copy(&get);
        get()
    };
    // SAFETY: the text is static and zero-terminated.
    (!text.is_null()).then(|| unsafe { core::ffi::CStr::from_ptr(text) })
}

/// Where in a [`Real`] the address is, for assembly.
pub const AT: usize = core::mem::offset_of!(Real, at);
