//! Threads' names: what Python calls them, or what the kernel knows them by.
//!
//! CPython tells the kernel from 3.14 on. Before that a thread's name is known where it is made:
//! `threading.Thread.start` enters the object into `threading._limbo` and then has the interpreter
//! call `pthread_create`, with the lock held. There the name is read, through the interpreter's
//! public API, and left for the new thread to find, with the number of the one that made it.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::notes::{self, NAME_BYTES, Note};
use crate::threads::{self, Me};
use crate::{config, python, real, ruby, sys, tracing};

/// A thread was made by the calling one, `me`, which holds a lock of the interpreter's, or has it to
/// itself while nobody wants names.
fn leave_for(thread: u64, me: Me) {
    let made_by = u64::from(me.seat().generation) << 32 | u64::from(me.who.0 + 1);
    let mut note = Note { name: [0; NAME_BYTES], made_by };
    if are_wanted() {
        python::name_of_starting(&mut note.name);
    }
    notes::leave(thread, note);
}

fn text(name: &[u8]) -> &[u8] {
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    name.get(..length).unwrap_or(&[])
}

/// What the kernel called a thread when it was first seen: a name that it inherited, and that says
/// nothing until it changes.
pub struct Inherited([AtomicU64; 2], AtomicU32);

impl Inherited {
    pub const fn new() -> Inherited {
        Inherited([const { AtomicU64::new(0) }; 2], AtomicU32::new(0))
    }

    fn words(name: [u8; 16]) -> [u64; 2] {
        let number = u128::from_ne_bytes(name);
        [number as u64, (number >> 64) as u64]
    }

    fn set(&self, name: [u8; 16]) {
        for (place, word) in self.0.iter().zip(Inherited::words(name)) {
            place.store(word, Ordering::Relaxed);
        }
    }

    fn is(&self, name: [u8; 16]) -> bool {
        let words = Inherited::words(name);
        self.0.iter().zip(words).all(|(place, word)| place.load(Ordering::Relaxed) == word)
    }
}

fn set(me: Me, name: &[u8]) {
    threads::classify(me, name);
    tracing::name_thread(me, name);
}

/// Whether names matter to anybody. To find one out takes some microseconds.
fn are_wanted() -> bool {
    tracing::recorder().is_some() || config::get().policy.is_some_and(|spec| spec.reads_names())
}

/// A thread is seen for the first time.
pub fn begin(me: Me) {
    if !are_wanted() {
        return;
    }
    me.slot.inherited.set(sys::thread_name());
    me.slot.inherited.1.store(0, Ordering::Relaxed);
    let is_main = me.slot.native_id.load(Ordering::Relaxed) == sys::pid();
    set(me, if is_main { b"MainThread" } else { b"" });
}

/// Called at each acquisition. The first one fetches the name that was left; later a thread may be
/// named anew, so the kernel is asked after the 2nd, 4th, 8th, … acquisition.
pub fn acquired(me: Me) {
    let count = me.slot.acquired.load(Ordering::Relaxed).wrapping_add(1);
    me.slot.acquired.store(count, Ordering::Relaxed);
    if !count.is_power_of_two() {
        return;
    }
    let given = &me.slot.inherited.1;
    if count == 1
        && let Some(note) = notes::fetch(real::thread_self())
    {
        me.slot.made_by.store(note.made_by, Ordering::Relaxed);
        let name = text(&note.name);
        // Without one, several threads were starting at a time.
        if are_wanted() && !name.is_empty() {
            given.store(1, Ordering::Relaxed);
            set(me, name);
        }
    }
    if !are_wanted() {
        return;
    }
    let kernels = sys::thread_name();
    // CPython's own name for the thread is longer than the 15 bytes that the kernel keeps of it.
    if given.load(Ordering::Relaxed) == 0 && !me.slot.inherited.is(kernels) {
        set(me, text(&kernels));
    }
}

/// Whether `place` is on the calling thread's stack, in the frame of a caller, as where CPython puts
/// the handle of a thread that it makes. Elsewhere it may be gone by now: a program may keep the
/// handle in what the new thread frees.
fn is_of_a_caller(place: *const u64) -> bool {
    const NEAR: usize = 64 << 10;
    let here = 0u8;
    place.addr().wrapping_sub((&raw const here).addr()) < NEAR
}

type Create = unsafe extern "C" fn(
    *mut u64,
    *const c_void,
    unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// In front of the C library's function of this name.
///
/// # Safety
/// As for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut u64,
    attributes: *const c_void,
    start: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    const EAGAIN: c_int = 11;
    let Some(create) = real::thread_create::<Create>() else { return EAGAIN };
    if config::is_on() {
        // Where nobody calls `ruby_run_node` from outside.
        ruby::ticks::starts();
    }
    // SAFETY: the arguments are the caller's, passed on as they are.
    let result = unsafe { create(thread, attributes, start, argument) };
    if result == 0 && is_of_a_caller(thread) {
        // SAFETY: the call succeeded and wrote the new thread's handle there, into a variable of a
        // function that has not returned.
        let made = unsafe { *thread };
        match threads::holder() {
            Some(me) => leave_for(made, me),
            // What is there was for an earlier thread of that handle, which never used a lock.
            None => drop(notes::fetch(made)),
        }
    }
    result
}
