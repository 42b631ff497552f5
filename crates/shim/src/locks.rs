//! CPython's locks, from the moment that one is found until it is destroyed.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use deconvoy_gil::{Gate, GateCell, Guard, Own, System, Usage};
use deconvoy_policy::{Driver, Nanos};
use deconvoy_trace::format::{Kind, MAX_LOCKS};
use deconvoy_trace::notes::Notes;

use crate::latch::Locked;
use crate::layout::{self, LONGEST_INTERVAL_US};
use crate::records::Records;
use crate::sys::{Linux, Timespec};
use crate::threads::PARKERS;
use crate::tracing::{self, Here};
use crate::{config, environment, real, sys};

/// What becomes of a lock's calls. Goes up only, but for a lock that is made anew.
///
/// | mode | calls |
/// |---|---|
/// | `FREE` | no lock here |
/// | `FOUND` | noted, and passed on; nobody has waited yet, so it can still turn out to be none |
/// | `SERVED` | answered by the gate |
/// | `WATCHED` | noted, and passed on |
pub mod mode {
    pub const FREE: u32 = 0;
    pub const FOUND: u32 = 1;
    pub const SERVED: u32 = 2;
    pub const WATCHED: u32 = 3;
}

/// What the lock's own mutex guards.
pub struct Inside {
    records: Records,
    usage: Usage,
    /// Watching: when the present holder was first asked.
    pub asked_ns: Option<u64>,
}

pub struct Lock {
    /// The address of `cond`; 0: nobody can find the lock.
    cond: AtomicUsize,
    /// The same, for those who found it before.
    at: AtomicUsize,
    mode: AtomicU32,
    /// The thread pointer of the thread whose own the lock is, where nobody wants to know what it
    /// does with it; 0: none, or all is seen.
    sole: AtomicUsize,
    inside: UnsafeCell<Inside>,
    /// Written in `make` when there is a policy; from then on shared by all threads, which know how
    /// to share it.
    cell: UnsafeCell<MaybeUninit<GateCell<'static, Notes<Here>, Locked>>>,
    /// How many threads are inside a call that is served: the place is not used again before they
    /// are out.
    visitors: AtomicU32,
}

/// A thread inside a served call.
pub struct Visit(&'static Lock);

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.visitors.fetch_sub(1, Ordering::Release);
    }
}

// SAFETY:
// - `inside` is reached with the lock's own mutex held, under which CPython makes all calls that
//   lead there (the table in `host.rs`), or, in `Lock::make`, before any thread but the one that
//   makes the lock knows it;
// - `cell` is written in `Lock::make`, and read only between that and the lock's end.
unsafe impl Sync for Lock {}

impl Lock {
    const fn new() -> Lock {
        let inside = Inside { records: Records::new(), usage: Usage::Fresh, asked_ns: None };
        Lock {
            cond: AtomicUsize::new(0),
            at: AtomicUsize::new(0),
            mode: AtomicU32::new(mode::FREE),
            sole: AtomicUsize::new(0),
            inside: UnsafeCell::new(inside),
            cell: UnsafeCell::new(MaybeUninit::uninit()),
            visitors: AtomicU32::new(0),
        }
    }
}

static LOCKS: [Lock; MAX_LOCKS] = [const { Lock::new() }; MAX_LOCKS];

/// Places in `LOCKS` below this have been used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Which of a lock's two condition variables an address is.
#[derive(Clone, Copy)]
pub enum Part {
    Cond(&'static Lock),
    SwitchCond(&'static Lock),
}

impl Part {
    pub fn lock(self) -> &'static Lock {
        match self {
            Part::Cond(lock) | Part::SwitchCond(lock) => lock,
        }
    }
}

/// The lock that a condition variable belongs to.
pub fn find(address: usize) -> Option<Part> {
    let used = USED.load(Ordering::Acquire);
    for lock in LOCKS.iter().take(used) {
        let cond = lock.cond.load(Ordering::Relaxed);
        match address.wrapping_sub(cond) {
            0 if cond != 0 => return Some(Part::Cond(lock)),
            layout::SWITCH_COND if cond != 0 => return Some(Part::SwitchCond(lock)),
            _ => {}
        }
    }
    None
}

impl Lock {
    /// `None`: the lock was destroyed since it was found.
    pub fn visit(&'static self) -> Option<Visit> {
        // Sequentially consistent with `end`: either this sees the end, or the end sees the visit.
        self.visitors.fetch_add(1, Ordering::SeqCst);
        let visit = Visit(self);
        (self.mode.load(Ordering::SeqCst) == mode::SERVED).then_some(visit)
    }

    /// Whether a thread is inside a call that is served; the lock's own mutex is held.
    pub fn has_visitors(&self) -> bool {
        self.visitors.load(Ordering::Relaxed) > 0
    }

    pub fn mode(&self) -> u32 {
        self.mode.load(Ordering::Acquire)
    }

    /// Enters a lock that was just made, or whose making was missed: then the caller holds its
    /// mutex.
    pub fn make(cond: usize) -> Option<&'static Lock> {
        let number = LOCKS.iter().position(|lock| {
            // Acquire pairs with the Release of a visit's end.
            lock.visitors.load(Ordering::Acquire) == 0
                && lock.cond.compare_exchange(0, cond, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        let lock = LOCKS.get(number)?;
        lock.at.store(cond, Ordering::Relaxed);
        if number == 0 && !config::get().exec_children {
            // SAFETY: the first lock is made as the interpreter starts, before it reads its
            // environment or runs the program.
            unsafe { environment::leave() };
        }
        tracing::begin();
        let recorder = tracing::recorder();
        let notes = Notes::new(recorder, number.min(255) as u8, Here);
        // SAFETY: nobody else knows the lock yet.
        let inside = unsafe { &mut *lock.inside.get() };
        inside.usage = Usage::Fresh;
        inside.asked_ns = None;
        let latch = Locked(cond.wrapping_sub(layout::LOCKED) as *const AtomicU32);
        if let Some(spec) = config::get().policy {
            let cores = config::get().cores;
            let Some((slots, known)) = inside.records.renew() else {
                lock.cond.store(0, Ordering::Release);
                return None;
            };
            let policy = spec.build(Driver { cores, counts_instructions: false }, slots);
            let gate = Gate::new(number as u32 + 1, policy, &PARKERS, known, cores, notes, latch);
            // SAFETY: as above; no thread is inside a call of a lock that was in this place before.
            unsafe { (*lock.cell.get()).write(GateCell::new(gate)) };
        }
        if let Some(recorder) = recorder {
            recorder.header().locks.fetch_add(1, Ordering::Relaxed);
            recorder.write(Linux.now().0, Kind::LockStart, 0, number.min(255) as u8, 0);
        }
        lock.mode.store(mode::FOUND, Ordering::Release);
        USED.fetch_max(number + 1, Ordering::Release);
        Some(lock)
    }

    /// The lock is destroyed, which CPython begins with `cond` (`intact`: the rest of it is still
    /// there), or its memory is something else now.
    pub fn end(&'static self, intact: bool) {
        if self.mode.swap(mode::FREE, Ordering::SeqCst) == mode::SERVED {
            let guard = self.guard();
            // SAFETY: the owner destroys the lock, and so does not hold its mutexes; each is let go
            // of before the next. Daemon threads may still wait inside; if the memory is something
            // else now, they wait for nothing.
            unsafe {
                if intact {
                    guard.lock();
                }
                self.cell().gate().close(&Linux);
                if intact {
                    guard.unlock();
                    self.switch_guard().lock();
                    self.cell().announce_taken(&Linux);
                    self.switch_guard().unlock();
                    self.wait_for_visitors();
                    // Whoever left a forced switch last did so with this mutex held.
                    self.switch_guard().lock();
                    self.switch_guard().unlock();
                }
            }
        }
        if let Some(recorder) = tracing::recorder() {
            recorder.write(Linux.now().0, Kind::LockEnd, 0, self.number(), 0);
        }
        self.sole.store(0, Ordering::Relaxed);
        self.cond.store(0, Ordering::Release);
    }

    /// The C library destroys a condition variable when those who wait on it have left it. Ours are
    /// awake and on their way; whoever takes longer finds the lock as it is left.
    ///
    /// # Safety
    /// The lock is intact, and the calling thread holds neither of its mutexes.
    unsafe fn wait_for_visitors(&self) {
        const LONGEST: Nanos = Nanos::from_millis(1_000);
        const LOOK: Nanos = Nanos::from_micros(50);
        let begun = Linux.now();
        loop {
            // Whoever leaves does so with the mutex held.
            // SAFETY: as the caller says.
            let left = unsafe {
                self.guard().lock();
                let left = self.visitors.load(Ordering::SeqCst) == 0;
                self.guard().unlock();
                left
            };
            let now = Linux.now();
            if left || now.since(begun) >= LONGEST {
                return;
            }
            let nobody = AtomicU32::new(0);
            Linux.futex_wait(&nobody, 0, Some(now.after(LOOK)));
        }
    }

    pub fn number(&self) -> u8 {
        let at = &raw const *self as usize - LOCKS.as_ptr() as usize;
        (at / size_of::<Lock>()).min(255) as u8
    }

    pub fn cell(&'static self) -> &'static GateCell<'static, Notes<Here>, Locked> {
        // SAFETY: written in `make`, before the lock could be found; those that come here have a
        // policy.
        unsafe { (*self.cell.get()).assume_init_ref() }
    }

    /// # Safety
    /// The lock's own mutex is held.
    #[allow(clippy::mut_from_ref, reason = "the mutex makes it exclusive")]
    pub unsafe fn inside(&'static self) -> &'static mut Inside {
        // SAFETY: as the caller says.
        unsafe { &mut *self.inside.get() }
    }

    /// The lock is the calling thread's own from now on. Whether that is so unseen.
    ///
    /// # Safety
    /// The lock's own mutex is held.
    pub unsafe fn give(&'static self, own: Own) -> bool {
        // SAFETY: as the caller says; the reference ends here.
        unsafe { self.inside() }.usage = Usage::Own(own);
        let is_unseen = !config::get().notes_each();
        if is_unseen {
            self.sole.store(sys::thread_pointer(), Ordering::Relaxed);
        }
        is_unseen
    }

    /// Whether it is, and nobody wants to know what the thread does with it.
    pub fn is_own_unseen(&self) -> bool {
        self.sole.load(Ordering::Relaxed) == sys::thread_pointer()
    }

    /// Who uses it. From now on all is seen.
    ///
    /// # Safety
    /// The lock's own mutex is held.
    #[allow(clippy::mut_from_ref, reason = "the mutex makes it exclusive")]
    pub unsafe fn usage(&'static self) -> &'static mut Usage {
        self.sole.store(0, Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { &mut self.inside().usage }
    }

    fn read(&self, before: usize) -> u64 {
        let at = self.at.load(Ordering::Relaxed).wrapping_sub(before);
        // SAFETY: a field of the lock's struct, which lives as long as calls on it are made;
        // aligned as CPython's compiler aligned it.
        unsafe { (at as *const u64).read_volatile() }
    }

    /// The lock's own mutex.
    pub fn guard(&self) -> real::Mutex {
        real::Mutex(self.at.load(Ordering::Relaxed).wrapping_add(layout::MUTEX) as *mut c_void)
    }

    /// The mutex of the forced switch.
    fn switch_guard(&self) -> real::Mutex {
        let at = self.at.load(Ordering::Relaxed);
        real::Mutex(at.wrapping_add(layout::SWITCH_MUTEX) as *mut c_void)
    }

    pub fn interval(&self) -> Nanos {
        Nanos::from_micros(self.read(layout::INTERVAL).clamp(1, LONGEST_INTERVAL_US))
    }

    pub fn switches(&self) -> u64 {
        self.read(layout::SWITCHES)
    }

    pub fn is_locked(&self) -> bool {
        self.read(layout::LOCKED) as u32 == 1
    }

    /// At a wait on it: is it the lock that it looks like?
    pub fn is_what_it_seems(&self, mutex: usize, deadline: &Timespec) -> bool {
        const LATE: Nanos = Nanos::from_millis(200);
        let interval = self.interval();
        let now = Linux.now();
        let end = deadline.nanos();
        let in_time = end <= now.after(interval) && end.after(LATE) >= now.after(interval);
        let cond = self.cond.load(Ordering::Relaxed);
        cond.wrapping_add(layout::MUTEX) == mutex && self.is_locked() && in_time
    }

    /// It is none, or nothing shows that it is one; it may be discovered again.
    pub fn forget(&self) {
        self.mode.store(mode::FREE, Ordering::Release);
        self.sole.store(0, Ordering::Relaxed);
        self.cond.store(0, Ordering::Release);
    }

    /// At a wait on it: is it to be served, or watched, from now on? Served only when it is known
    /// who holds it: the lock would be granted beside a holder that was never seen.
    ///
    /// # Safety
    /// The lock's own mutex is held.
    pub unsafe fn verify(&'static self, mutex: usize, deadline: &Timespec) -> bool {
        let served = config::get().policy.is_some();
        // SAFETY: as the caller says; the reference ends here.
        if served && unsafe { self.usage() }.is_fresh() {
            return false;
        }
        if !self.is_what_it_seems(mutex, deadline) {
            self.forget();
            return false;
        }
        if served && config::get().cores > 1 {
            // SAFETY: what called is a wait on the lock's own mutex, which is held; the other one
            // lies behind it in CPython's struct, and was initialised before.
            unsafe {
                if self.guard().is_held_here() {
                    self.guard().spin_first();
                    self.switch_guard().spin_first();
                }
            }
        }
        self.mode.store(if served { mode::SERVED } else { mode::WATCHED }, Ordering::Release);
        true
    }
}

/// Whether the calling thread has a lock to itself, unseen.
pub fn has_own_unseen() -> bool {
    LOCKS.iter().take(USED.load(Ordering::Acquire)).any(Lock::is_own_unseen)
}

/// The calling thread ends; another one may get its thread pointer.
pub fn thread_ended() {
    let me = sys::thread_pointer();
    for lock in LOCKS.iter().take(USED.load(Ordering::Acquire)) {
        let _ = lock.sole.compare_exchange(me, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The lock with this number.
pub fn by_number(number: u32) -> Option<&'static Lock> {
    LOCKS.get(number as usize)
}

/// In a forked child: no lock is served until the interpreter has made it anew, as it does.
pub fn forked() {
    for lock in LOCKS.iter().take(USED.load(Ordering::Relaxed)) {
        lock.mode.store(mode::FREE, Ordering::Relaxed);
        lock.sole.store(0, Ordering::Relaxed);
        lock.cond.store(0, Ordering::Relaxed);
        lock.visitors.store(0, Ordering::Relaxed);
    }
}
