//! `dlsym`, wherever the C library keeps it.
//!
//! glibc 2.34 moved it from libdl into libc and gave it a new version; a reference to the first
//! version finds both. libdl is not among the libraries that this one needs: to load it costs every
//! program that is started 40 us (a quarter of all that this library costs it), and from 2.34 on it
//! is empty. Before, a CPython has loaded it itself; in a program that has not, the functions by
//! which libc itself loads libraries do it. Where it is not installed (glibc's own package has it)
//! such a program does not run with this library, whether it is asked for here or by the loader.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute_copy;
use core::sync::atomic::{AtomicPtr, Ordering};

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".symver deconvoy_dlsym, dlsym@GLIBC_2.2.5");
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".symver deconvoy_dlsym, dlsym@GLIBC_2.17");

// Weak: what is not there is 0. `__libc_…` is in glibc before 2.34 only.
core::arch::global_asm!(
    ".weak deconvoy_dlsym",
    ".weak __libc_dlopen_mode",
    ".weak __libc_dlsym",
    ".pushsection .data.rel.ro.deconvoy_loader, \"aw\", @progbits",
    ".balign 8",
    ".hidden deconvoy_loader",
    ".globl deconvoy_loader",
    "deconvoy_loader:",
    ".quad deconvoy_dlsym",
    ".quad __libc_dlopen_mode",
    ".quad __libc_dlsym",
    ".popsection",
);

#[repr(C)]
struct Found {
    dlsym: *mut c_void,
    libc_dlopen: *mut c_void,
    libc_dlsym: *mut c_void,
}

unsafe extern "C" {
    static deconvoy_loader: Found;
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

/// A function of the loader's; null: not looked for yet, or not there.
struct Place(AtomicPtr<c_void>);

impl Place {
    const fn new() -> Place {
        Place(AtomicPtr::new(core::ptr::null_mut()))
    }

    fn get(&self, look: impl FnOnce() -> *mut c_void) -> Option<*mut c_void> {
        let mut at = self.0.load(Ordering::Relaxed);
        if at.is_null() {
            at = look();
            self.0.store(at, Ordering::Relaxed);
        }
        (!at.is_null()).then_some(at)
    }
}

/// Whether two addresses are in one program or library.
pub fn are_together(one: usize, other: usize) -> bool {
    base_of(one).is_some_and(|base| base_of(other) == Some(base))
}

/// Where the program or library begins that an address is in.
pub fn base_of(address: usize) -> Option<usize> {
    #[repr(C)]
    struct Info {
        file: *const c_char,
        base: *mut c_void,
        name: *const c_char,
        at: *mut c_void,
    }
    type Dladdr = unsafe extern "C" fn(*const c_void, *mut Info) -> c_int;
    let dladdr = symbol(c"dladdr");
    if dladdr.is_null() {
        return None;
    }
    // SAFETY: the type is glibc's.
    let dladdr: Dladdr = unsafe { transmute_copy(&dladdr) };
    let null: *mut c_void = core::ptr::null_mut();
    let mut info = Info { file: null.cast(), base: null, name: null.cast(), at: null };
    // SAFETY: any address may be asked for; `info` is a place for the answer.
    let found = unsafe { dladdr(address as *const c_void, &raw mut info) };
    (found != 0).then_some(info.base as usize)
}

fn dlsym() -> Option<Dlsym> {
    static AT: Place = Place::new();
    let at = AT.get(|| {
        // SAFETY: three addresses, which the loader filled in before it ran anything of this library.
        let dlsym = unsafe { deconvoy_loader.dlsym };
        if dlsym.is_null() { inside(c"libdl.so.2", c"dlsym") } else { dlsym }
    });
    // SAFETY: the type is POSIX's.
    at.map(|at| unsafe { transmute_copy(&at) })
}

/// `dlvsym`, looked up: a reference to it would keep programs on musl from starting, which has
/// none, and which a served shell may start.
fn dlvsym() -> Option<Dlvsym> {
    static AT: Place = Place::new();
    let at = AT.get(|| {
        let at = symbol(c"dlvsym");
        if at.is_null() { inside(c"libdl.so.2", c"dlvsym") } else { at }
    });
    // SAFETY: the type is glibc's.
    at.map(|at| unsafe { transmute_copy(&at) })
}

/// Loads a part of the C library for a program that does not, and looks there; null where glibc is not
/// older than 2.34, and where there is no glibc.
#[cold]
fn inside(library: &CStr, name: &CStr) -> *mut c_void {
    /// `RTLD_NOW`, and what glibc's own `dlopen` adds.
    const NOW: c_int = 2 | c_int::MIN;
    // SAFETY: as in `dlsym`.
    let (open, symbol) = unsafe { (deconvoy_loader.libc_dlopen, deconvoy_loader.libc_dlsym) };
    if open.is_null() || symbol.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the types are those of glibc 2.2.5 to 2.33, which alone has both functions, and whose
    // own libraries load others by them; the strings are zero-terminated.
    unsafe {
        let (open, symbol): (Dlopen, Dlsym) = (transmute_copy(&open), transmute_copy(&symbol));
        let library = open(library.as_ptr(), NOW);
        if library.is_null() { library } else { symbol(library, name.as_ptr()) }
    }
}

/// A symbol of the program or of any library that is loaded for everybody; null: there is none.
pub fn symbol(name: &CStr) -> *mut c_void {
    let Some(dlsym) = dlsym() else { return core::ptr::null_mut() };
    // SAFETY: the name is zero-terminated.
    unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) }
}

/// A symbol of the libraries behind this one, of that version where there are versions; null: there
/// is none.
pub fn next(name: &CStr, version: Option<&CStr>) -> *mut c_void {
    let mut at = core::ptr::null_mut();
    if let Some((version, dlvsym)) = version.zip(dlvsym()) {
        // SAFETY: both strings are zero-terminated.
        at = unsafe { dlvsym(RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
    }
    if at.is_null()
        && let Some(dlsym) = dlsym()
    {
        // SAFETY: the name is zero-terminated.
        at = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
    }
    at
}

/// A symbol of the library of threads, which is the C library's own from glibc 2.34 on; null: there is
/// none.
pub fn next_of_threads(name: &CStr) -> *mut c_void {
    let at = next(name, None);
    if at.is_null() { inside(c"libpthread.so.0", name) } else { at }
}
