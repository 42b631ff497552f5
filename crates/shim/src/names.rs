//! Threads' names: what the kernel knows them by.
//!
//! CPython 3.14 and later tell the kernel; before that, `pthread_create` is the place where the
//! name is known (see `hooks::thread_create`).

use core::sync::atomic::Ordering;

use crate::threads::{self, Me};
use crate::{sys, tracing};

/// Looks at the calling thread's name.
pub fn refresh(me: Me) {
    let name = sys::thread_name();
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let name = name.get(..length).unwrap_or(&[]);
    threads::classify(me, name);
    tracing::name_thread(me, name);
}

/// Called at each acquisition: a thread gets its name after its start, and may change it, so it
/// is looked at after the 1st, 2nd, 4th, 8th, … acquisition.
pub fn acquired(me: Me) {
    let count = me.slot.acquired.load(Ordering::Relaxed).wrapping_add(1);
    me.slot.acquired.store(count, Ordering::Relaxed);
    if count.is_power_of_two() {
        refresh(me);
    }
}
