//! Which Ruby this is.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::loader;

/// Which Ruby this process is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kin {
    /// None, or one that nobody knows.
    None,
    /// Waiters wait on condition variables of their own, one of them with a time limit.
    Queue,
    /// A thread keeps time for all.
    Ticks,
}

/// Looked for anew for a while, as long as there is neither a Ruby nor a Python: it may be loaded
/// later. To look costs a microsecond or two.
pub fn kin() -> Kin {
    const QUEUE: u32 = 1;
    const TICKS: u32 = 2;
    const NEITHER: u32 = 3;
    static FOUND: AtomicU32 = AtomicU32::new(0);
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    const MOST_LOOKS: u32 = 64;
    let mut found = FOUND.load(Ordering::Relaxed);
    if found == 0 {
        found = match version() {
            Some([2, 6..=7, _] | [3, 0..=2, _]) => QUEUE,
            Some([3, minor, _]) if minor >= 3 => TICKS,
            Some([4, _, _]) => TICKS,
            None if loader::symbol(c"Py_GetVersion").is_null()
                && LOOKS.fetch_add(1, Ordering::Relaxed) < MOST_LOOKS =>
            {
                0
            }
            Some(_) | None => NEITHER,
        };
        FOUND.store(found, Ordering::Relaxed);
    }
    match found {
        QUEUE => Kin::Queue,
        TICKS => Kin::Ticks,
        _ => Kin::None,
    }
}

/// `ruby_api_version`: three numbers.
fn version() -> Option<[c_int; 3]> {
    let at = loader::symbol(c"ruby_api_version");
    let known = !at.is_null() && !loader::symbol(c"rb_thread_call_without_gvl").is_null();
    // SAFETY: Ruby's API has it as an array of three `int` in every version.
    known.then(|| unsafe { *at.cast::<[c_int; 3]>() })
}

/// As `ruby -v` says, for the trace.
pub fn description() -> Option<&'static CStr> {
    let at = loader::symbol(c"ruby_description");
    // SAFETY: Ruby's API has it as a zero-terminated text, which is constant.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at.cast()) })
}
