//! A thread of Ruby 3.3 and later that comes back from a yield yields again as long as the policy asks:
//! Ruby's queue is first come, first served, and others may be in line before the one that is to go
//! first.

use core::arch::naked_asm;
use core::ffi::c_void;
use core::sync::atomic::Ordering;

use deconvoy_gil::Guard;

use super::ticks::doing;
use super::{Wish, keeper, set_free, steered, wish};
use crate::host::with_me;
use crate::real::{self, Real};
use crate::threads::Me;

/// Before the lock's mutex is let go of. Whether the calling thread has just come back from a yield,
/// and is to yield again: others were in line before the one that is to go first.
pub fn unlocks() -> bool {
    let again = with_me(|me| {
        let doing = me.slot.doing.swap(0, Ordering::Relaxed);
        let has_yielded = doing & doing::YIELDS != 0 && me.slot.holds.load(Ordering::Relaxed) > 0;
        // Inside `unlock_and_yield` that decides.
        has_yielded && doing & doing::IS_NESTED == 0 && may_yield_again(me)
    });
    again.unwrap_or(false)
}

/// The calling thread has the lock, and keeps it for now.
pub fn goes_on(me: Me, wish: Wish) {
    set_free(me);
    keeper::hurry(wish);
}

/// So often in a row a thread yields as soon as it has the lock: then it does something first.
const YIELDS_IN_A_ROW: u32 = 32;

fn may_yield_again(me: Me) -> bool {
    let yielded = me.slot.yielded.load(Ordering::Relaxed);
    let again = yielded < YIELDS_IN_A_ROW && is_asked(me);
    me.slot.yielded.store(if again { yielded + 1 } else { 0 }, Ordering::Relaxed);
    if !again {
        goes_on(me, steered(wish).unwrap_or(Wish::NONE));
    }
    again
}

fn is_asked(me: Me) -> bool {
    let asks = |steer: &mut _, now| wish(steer, now).asks || keeper::is_newcomer(now);
    steered(|steer, now| asks(steer, now) && steer.holder() == Some(me.who)).unwrap_or(false)
}

/// Lets go of the mutex at the end of a yield, and yields again as long as the policy asks. It is what
/// `Thread.pass` does, where the thread is about to look for interrupts anyway: one that raises does so
/// from here as it would from there, by a jump over this frame, which has nothing to clean up.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn unlock_and_yield() {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {unlock}",
        "2:",
        "call {next}",
        "test rax, rax",
        "jz 3f",
        "call rax",
        "jmp 2b",
        "3:",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "xor eax, eax",
        "ret",
        ".cfi_endproc",
        unlock = sym unlock,
        next = sym yields_again,
    )
}

#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn unlock_and_yield() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "bl {unlock}",
        "2:",
        "bl {next}",
        "cbz x0, 3f",
        "blr x0",
        "b 2b",
        "3:",
        "mov w0, #0",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        unlock = sym unlock,
        next = sym yields_again,
    )
}

unsafe extern "C" fn unlock(mutex: *mut c_void) {
    // SAFETY: the caller of the C library's function holds it.
    unsafe { real::Mutex(mutex).unlock() };
}

/// `rb_thread_schedule`, if the calling thread is to call it; null: it goes on.
unsafe extern "C" fn yields_again() -> *mut c_void {
    static SCHEDULE: Real = Real::new(c"rb_thread_schedule");
    let asked = with_me(|me| {
        // It did not yield: there is nobody in line.
        let is_alone = me.slot.doing.load(Ordering::Relaxed) & doing::CALLS != 0;
        // Whether or not it did, it has the lock.
        let again = !is_alone && may_yield_again(me);
        me.slot.doing.store(if again { doing::CALLS } else { 0 }, Ordering::Relaxed);
        again
    });
    if asked == Some(true) { SCHEDULE.get() } else { core::ptr::null_mut() }
}
