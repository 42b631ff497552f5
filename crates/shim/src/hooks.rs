//! The functions that this library puts in front of the C library's.
//!
//! Each is a few instructions that save the arguments, ask a *plan* where to go, restore them and
//! jump there. A call that is none of ours reaches the C library with the stack as the caller left
//! it: cancellation, unwinding and back-traces pass as if we were not there. But for
//! `sched_setaffinity`, which is no point of cancellation and calls back to nobody, and `sem_wait` of a
//! thread that uses an interpreter's lock, under a policy that breaks convoys: that has a frame with
//! nothing to clean up.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use crate::host::{self, Answer};
use crate::locks::{self, Part};
use crate::ruby::{self, line, queue, ticks};
use crate::sys::{Linux, Timespec};
use crate::{config, finding, peers, real, sys, threads};

/// Where to jump.
pub type Target = *const c_void;

/// An exported function that asks a plan and jumps.
macro_rules! interpose {
    ($name:ident, $plan:path) => {
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "call {plan}",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp rax",
                ".cfi_endproc",
                plan = sym $plan,
            )
        }

        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-48]!",
                ".cfi_adjust_cfa_offset 48",
                ".cfi_rel_offset x29, 0",
                ".cfi_rel_offset x30, 8",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "bl {plan}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                ".cfi_adjust_cfa_offset -48",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "br x16",
                ".cfi_endproc",
                plan = sym $plan,
            )
        }
    };
}

interpose!(pthread_cond_init, plan_init);
interpose!(pthread_cond_destroy, plan_destroy);
interpose!(pthread_cond_signal, plan_signal);
interpose!(pthread_cond_wait, plan_wait);
interpose!(pthread_cond_timedwait, plan_timedwait);
interpose!(sem_post, plan_post);
interpose!(sem_wait, plan_sem_wait);
interpose!(sem_timedwait, plan_sem_timedwait);
interpose!(sem_clockwait, plan_sem_clockwait);
interpose!(sched_setaffinity, plan_setaffinity);
interpose!(ruby_run_node, plan_run_node);

/// Answers a call that needs nothing more.
unsafe extern "C" fn done() -> c_int {
    0
}

unsafe extern "C" fn plan_init(cond: *mut c_void) -> Target {
    if config::is_on() {
        finding::cond_initialised(cond as usize);
    }
    real::COND_INIT.get()
}

unsafe extern "C" fn plan_destroy(cond: *mut c_void) -> Target {
    if config::is_on() {
        finding::cond_destroyed(cond as usize);
    }
    real::COND_DESTROY.get()
}

unsafe extern "C" fn plan_signal(cond: *mut c_void) -> Target {
    if queue::is_found() && queue::signals(cond as usize) {
        return queue::signal_chosen as Target;
    }
    if ticks::is_begun() {
        ticks::signals(cond as usize);
    }
    if ruby::is_steered() {
        peers::posts(cond as usize);
    }
    let answer = match locks::find(cond as usize) {
        // A program with one thread comes here twice for each of its system calls.
        Some(part) if part.lock().is_own_unseen() => host::signalled(part.lock()),
        Some(Part::Cond(lock)) => host::released(lock),
        Some(Part::SwitchCond(lock)) => host::acquired(lock),
        None => Answer::PassOn,
    };
    if answer == Answer::Serve { done as Target } else { real::COND_SIGNAL.get() }
}

unsafe extern "C" fn plan_wait(cond: *mut c_void, mutex: *mut c_void) -> Target {
    if ruby::is_mutex(mutex as usize) {
        return ruby::waits_with(cond as usize);
    }
    if ruby::may_be_found() {
        ticks::waits(mutex as usize);
    }
    if ruby::is_steered() {
        peers::waits(cond as usize);
    }
    if let Some(Part::SwitchCond(lock)) = locks::find(cond as usize)
        && host::forced(lock) == Answer::Serve
    {
        return host::serve_switch as Target;
    }
    real::COND_WAIT.get()
}

unsafe extern "C" fn plan_timedwait(
    cond: *mut c_void,
    mutex: *mut c_void,
    deadline: *const Timespec,
) -> Target {
    let pass_on = real::COND_TIMEDWAIT.get();
    // SAFETY: a caller of `pthread_cond_timedwait` gives a deadline that it may read.
    let Some(deadline) = (unsafe { deadline.as_ref() }) else { return pass_on };
    queue::discover(cond as usize, mutex as usize);
    if ruby::is_mutex(mutex as usize) {
        return if ruby::waits(cond as usize) { line::keep_time as Target } else { pass_on };
    }
    if ruby::is_steered() {
        peers::waits(cond as usize);
    }
    let lock = match locks::find(cond as usize) {
        Some(Part::Cond(lock)) => Some(lock),
        None if config::is_on() => finding::discover(cond as usize, mutex as usize, deadline),
        _ => None,
    };
    let Some(lock) = lock else { return pass_on };
    match host::waits(lock, mutex as usize, deadline) {
        Answer::Serve => host::serve_wait as Target,
        Answer::Watch => {
            host::watch_begins(lock);
            watched_wait as Target
        }
        Answer::PassOn => pass_on,
    }
}

unsafe extern "C" fn plan_post(semaphore: *mut c_void) -> Target {
    peers::posts(semaphore as usize);
    real::SEM_POST.get()
}

unsafe extern "C" fn plan_sem_wait(semaphore: *mut c_void) -> Target {
    let pass_on = real::SEM_WAIT.get();
    if peers::waits(semaphore as usize) { wait_politely as Target } else { pass_on }
}

unsafe extern "C" fn plan_sem_timedwait(semaphore: *mut c_void) -> Target {
    peers::waits(semaphore as usize);
    real::SEM_TIMEDWAIT.get()
}

unsafe extern "C" fn plan_sem_clockwait(semaphore: *mut c_void) -> Target {
    peers::waits(semaphore as usize);
    let target = real::SEM_CLOCKWAIT.get();
    // A program that looks whether there is one finds ours.
    if target.is_null() { absent as Target } else { target }
}

unsafe extern "C" fn plan_setaffinity() -> Target {
    if config::is_on() { set_affinity as Target } else { real::SET_AFFINITY.get() }
}

/// A program that sets where one of its threads runs means the thread, not where it waits.
unsafe extern "C" fn set_affinity(thread: c_int, bytes: usize, mask: *const c_void) -> c_int {
    // SAFETY: the arguments are the caller's.
    let set = || unsafe { real::set_affinity(thread, bytes, mask) };
    let me = sys::thread_id();
    let native_id = if thread == 0 { me } else { thread as u32 };
    let Some((slot, parker)) = threads::find(native_id) else { return set() };
    // In a handler that interrupts a hook, which may be about to move the thread.
    if native_id == me && slot.busy.load(Ordering::Relaxed) != 0 {
        return set();
    }
    let mut done = 0;
    parker.allow(&Linux, || {
        done = set();
        // What the kernel made of the mask, not the mask.
        if done == 0 { sys::affinity_of(native_id) } else { None }
    });
    done
}

/// Ruby's own: it is about to run the program.
unsafe extern "C" fn plan_run_node() -> Target {
    if config::is_on() {
        ticks::starts();
    }
    real::RUN_NODE.get()
}

/// The C library's wait, with a note at its end. Written in assembly so that a thread that is
/// cancelled in it unwinds through a frame that has nothing to clean up.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn watched_wait() {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "mov rbx, rdi",
        "mov rax, [rip + {wait} + {at}]",
        "call rax",
        "mov rdi, rbx",
        "mov esi, eax",
        "mov ebx, eax",
        "call {ends}",
        "mov eax, ebx",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
        wait = sym real::COND_TIMEDWAIT,
        at = const real::AT,
        ends = sym host::watch_ends,
    )
}

#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn watched_wait() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x29, sp",
        "str x19, [sp, #16]",
        ".cfi_rel_offset x19, 16",
        "mov x19, x0",
        "adrp x16, {wait}",
        "add x16, x16, :lo12:{wait}",
        "ldr x16, [x16, #{at}]",
        "blr x16",
        "mov w1, w0",
        "mov x0, x19",
        "mov w19, w1",
        "bl {ends}",
        "mov w0, w19",
        "ldr x19, [sp, #16]",
        ".cfi_restore x19",
        "ldp x29, x30, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        wait = sym real::COND_TIMEDWAIT,
        at = const real::AT,
        ends = sym host::watch_ends,
    )
}

unsafe extern "C" fn interrupted() -> c_int {
    fails(sys::EINTR)
}

unsafe extern "C" fn absent() -> c_int {
    fails(sys::ENOSYS)
}

fn fails(with: c_int) -> c_int {
    unsafe extern "C" {
        fn __errno_location() -> *mut c_int;
    }
    // SAFETY: the calling thread's own.
    unsafe { *__errno_location() = with };
    -1
}

/// The C library's `sem_wait`, again and again while another thread is to have the semaphore. Written in
/// assembly for the same reason.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn wait_politely() {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "mov rbx, rdi",
        "2: mov rdi, rbx",
        "mov rax, [rip + {wait} + {at}]",
        "call rax",
        "test eax, eax",
        "jne 3f",
        "mov rdi, rbx",
        "mov rsi, [rsp + 8]",
        "call {taken}",
        "cmp eax, 1",
        "je 2b",
        "jb 3f",
        "call {interrupted}",
        "3: pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
        wait = sym real::SEM_WAIT,
        at = const real::AT,
        taken = sym peers::taken,
        interrupted = sym interrupted,
    )
}

#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn wait_politely() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x29, sp",
        "str x19, [sp, #16]",
        ".cfi_rel_offset x19, 16",
        "mov x19, x0",
        "2: mov x0, x19",
        "adrp x16, {wait}",
        "add x16, x16, :lo12:{wait}",
        "ldr x16, [x16, #{at}]",
        "blr x16",
        "cbnz w0, 3f",
        "mov x0, x19",
        "ldr x1, [x29, #8]",
        "bl {taken}",
        "cmp w0, #1",
        "b.eq 2b",
        "b.lo 3f",
        "bl {interrupted}",
        "3: ldr x19, [sp, #16]",
        ".cfi_restore x19",
        "ldp x29, x30, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        wait = sym real::SEM_WAIT,
        at = const real::AT,
        taken = sym peers::taken,
        interrupted = sym interrupted,
    )
}
