//! The preloaded library: CPython's lock calls under a policy, and traced. Nothing else.
//!
//! It is loaded into every program that `deconvoy run` or `trace` starts, and does nothing in one
//! that is not a CPython it knows. It has no standard library: nothing here allocates on the
//! C library's heap, prints, or unwinds.
//!
//! With the feature `mutexes` it is another library, which `deconvoy history explain` loads into a
//! benchmark: it counts the program's own mutexes, too. It is one apart because it stands in the way
//! of every lock that the program takes.
#![no_std]

mod config;
mod environment;
mod finding;
mod hooks;
mod host;
mod image;
mod latch;
mod layout;
mod loader;
mod locks;
#[cfg(feature = "mutexes")]
mod mutexes;
mod names;
mod notes;
mod peers;
mod python;
mod real;
mod records;
mod rseq;
mod ruby;
mod sys;
mod threads;
mod tracing;

use core::ffi::{c_char, c_int};

/// What the dynamic loader runs when the library is loaded; glibc passes the program's arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) =
    constructor;

unsafe extern "C" fn constructor(
    _argc: c_int,
    _argv: *const *const c_char,
    environment: *const *const c_char,
) {
    // musl calls constructors without arguments.
    if !real::is_glibc() || environment.is_null() {
        return;
    }
    // SAFETY: a constructor of a preloaded library runs before any other thread; the environment
    // is the process's.
    let wanted = unsafe { config::read(environment, sys::cores()) };
    // The first call of this one may come from a signal handler.
    real::SEM_POST.look_ahead();
    #[cfg(feature = "mutexes")]
    mutexes::begin();
    if wanted && !config::get().exec_children && ruby::kin() != ruby::Kin::None {
        // SAFETY: no other thread runs, and nobody has read the environment. (A Python is one for
        // certain when it makes its lock.)
        unsafe { environment::leave() };
    }
    if wanted && real::complete() && threads::set_up() {
        rseq::set_up();
        real::at_fork_in_child(forked);
    }
}

/// In a forked child only the calling thread goes on, and the interpreter makes its lock anew.
unsafe extern "C" fn forked() {
    tracing::forked();
    locks::forked();
    notes::forked();
    threads::forked();
    ruby::forked();
}

/// Nothing in here panics: a test looks for it in the finished library. If a compiler leaves a
/// check in all the same, the program ends as it would by a failed assertion in C.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::trap()
}
