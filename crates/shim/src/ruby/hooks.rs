//! The functions in front of the C library's that only Ruby needs. See `crate::hooks`: they are called by
//! every program, so the first look is a comparison.

use core::arch::naked_asm;
use core::ffi::c_void;

use super::{keeper, yields};
use crate::hooks::Target;
use crate::{real, ruby};

/// `pthread_mutex_unlock`: all of a program's come here, so one look, and on to the C library.
///
/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn pthread_mutex_unlock() {
    naked_asm!(
        ".cfi_startproc",
        "mov rax, [rip + {real} + {at}]",
        "test rax, rax",
        "jz 2f",
        "cmp rdi, [rip + {mutex}]",
        "je 2f",
        "jmp rax",
        "2:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {plan}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        real = sym real::MUTEX_UNLOCK,
        at = const real::AT,
        mutex = sym ruby::MUTEX,
        plan = sym plan_unlock,
    )
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn pthread_mutex_unlock() {
    naked_asm!(
        ".cfi_startproc",
        "adrp x16, {real}",
        "add x16, x16, :lo12:{real}",
        "ldr x16, [x16, #{at}]",
        "cbz x16, 2f",
        "adrp x17, {mutex}",
        "ldr x17, [x17, :lo12:{mutex}]",
        "cmp x0, x17",
        "b.eq 2f",
        "br x16",
        "2:",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "str x0, [sp, #16]",
        "bl {plan}",
        "mov x16, x0",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        real = sym real::MUTEX_UNLOCK,
        at = const real::AT,
        mutex = sym ruby::MUTEX,
        plan = sym plan_unlock,
    )
}

unsafe extern "C" fn plan_unlock(mutex: *mut c_void) -> Target {
    if ruby::is_mutex(mutex as usize) && ruby::unlocks() {
        return yields::unlock_and_yield as Target;
    }
    real::MUTEX_UNLOCK.get()
}

/// `epoll_wait`, with where it was called from.
///
/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn epoll_wait() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, [rsp + 40]",
        "call {plan}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        plan = sym plan_epoll,
    )
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn epoll_wait() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-48]!",
        ".cfi_adjust_cfa_offset 48",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "mov x0, x30",
        "bl {plan}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        ".cfi_adjust_cfa_offset -48",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        plan = sym plan_epoll,
    )
}

unsafe extern "C" fn plan_epoll(caller: usize) -> Target {
    if keeper::is_time_keeper(caller) {
        return keeper::keep_time as Target;
    }
    real::EPOLL_WAIT.get()
}
