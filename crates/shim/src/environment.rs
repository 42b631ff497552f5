//! Takes this library out of the environment that a program passes on (`--no-exec-children`).

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::loader;

const NAME: &[u8] = b"LD_PRELOAD=";
const OURS: &[u8] = b"libdeconvoy_preload.so";

struct Text(UnsafeCell<[u8; 4096]>);

// SAFETY: written once, in `leave`, before the program's own code runs.
unsafe impl Sync for Text {}

static REST: Text = Text(UnsafeCell::new([0; 4096]));

/// The other libraries of the list go on being passed on. Does nothing where the list is too long
/// to be written anew.
///
/// # Safety
/// The first call comes before the program starts threads or reads its environment.
pub unsafe fn leave() {
    // A forked child makes its lock anew; the text that is written is in its environment already.
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let environ = loader::symbol(c"environ").cast::<*mut *mut c_char>();
    if environ.is_null() {
        return;
    }
    // SAFETY: the C library's variable.
    let mut entry = unsafe { *environ };
    if entry.is_null() {
        return;
    }
    loop {
        // SAFETY: the environment ends with a null pointer, where the loop ends; entries are
        // zero-terminated.
        let text = unsafe { *entry };
        if text.is_null() {
            return;
        }
        // SAFETY: as above.
        let list = unsafe { CStr::from_ptr(text) }.to_bytes().strip_prefix(NAME);
        if let Some(list) = list {
            // SAFETY: nobody has seen it yet.
            let rest = unsafe { &mut *REST.0.get() };
            if without_ours(list, rest) {
                // SAFETY: the entry is the program's to change, and `REST` is zero-terminated.
                unsafe { *entry = rest.as_mut_ptr().cast() };
            }
            return;
        }
        // SAFETY: the entry was not the last.
        entry = unsafe { entry.add(1) };
    }
}

/// Writes the variable without this library to `rest`; whether it fits, with a zero byte behind.
fn without_ours(list: &[u8], rest: &mut [u8]) -> bool {
    let mut length = 0;
    let mut push = |bytes: &[u8]| {
        let Some(room) = rest.get_mut(length..length + bytes.len()) else { return false };
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
        }
        length += bytes.len();
        true
    };
    let mut fits = push(NAME);
    let mut first = true;
    for part in list.split(|&byte| byte == b':' || byte == b' ') {
        if part.is_empty() || part.ends_with(OURS) {
            continue;
        }
        fits &= (first || push(b":")) && push(part);
        first = false;
    }
    fits && push(&[0])
}
