//! A lock of our own under a policy: what the lab's threads share, with CPython's protocol.
//!
//! While one thread has it to itself, an acquisition and a release are one atomic operation each and
//! the policy knows of neither ([`Usage`]). The word says whose it is:
//!
//! | word | says | leaves it |
//! |---|---|---|
//! | `number + 1 << 2` | the own lock of that thread, free | the owner, by taking it; another, which shares it |
//! | the same with `HELD` | the own lock of that thread, held | the owner, by giving it up; another, which shares it |
//! | `SHARED` | used by several threads, free | with the mutex held |
//! | `SHARED` and `HELD` | used by several, held or kept for a waiter | with the mutex held |
//!
//! The owner changes the word with a compare-and-swap from one of its two values to the other and
//! another thread with an or, so whichever is second sees what the first one did: the owner goes the
//! long way then, and the other one knows whether the lock was held.

use core::cell::UnsafeCell;

use deconvoy_policy::timeout::DEFAULT_INTERVAL;
use deconvoy_policy::{AnyPolicy, Nanos, Observer, WaiterId};

use crate::mutex::{Mutex, MutexWith};
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::usage::{Own, Usage};
use crate::{Gate, GateCell, Guard, Latch, Outcome, Parker, Seat, System, wait, wait_for_switch};

const HELD: u32 = 1;
const SHARED: u32 = 2;

fn own_by(who: WaiterId) -> u32 {
    who.0.wrapping_add(1) << 2
}

/// What the mutex guards beside the gate.
#[derive(Debug)]
struct Inside {
    usage: Usage,
    last: Option<WaiterId>,
    waiting: u32,
}

/// The word of a lock, as the gate closes and opens it.
#[derive(Debug)]
pub struct Word<'a>(&'a AtomicU32);

impl Latch for Word<'_> {
    fn close(&self) {
        self.0.store(SHARED | HELD, Ordering::Relaxed);
    }

    fn open(&self) {
        self.0.store(SHARED, Ordering::Relaxed);
    }
}

/// What a lock is made of, in memory that outlives it.
#[derive(Debug)]
pub struct Parts<'a, O> {
    pub policy: AnyPolicy<'a>,
    /// Zero at first.
    pub word: &'a AtomicU32,
    /// One for each thread there may be, and of no other lock.
    pub parkers: &'a [Parker],
    /// Zeroes, as many.
    pub known: &'a mut [u32],
    /// How many threads can run at once.
    pub cores: u32,
    pub observer: O,
    /// The observer is to see every acquisition, so no thread has the lock unseen.
    pub sees_all: bool,
}

pub struct Lock<'a, S, O> {
    word: &'a AtomicU32,
    mutex: Mutex,
    sees_all: bool,
    /// 1: a drop request is out.
    request: AtomicU32,
    switches: AtomicU64,
    inside: UnsafeCell<Inside>,
    cell: GateCell<'a, O, Word<'a>>,
    system: S,
}

// SAFETY:
// - `inside` is reached with the mutex held;
// - everything else is atomic, read-only, or knows how to be shared.
unsafe impl<S: Sync, O: Send> Sync for Lock<'_, S, O> {}

/// The lock, held by the calling thread. Gives it up when it goes.
pub struct Held<'l, 'a, S: System, O: Observer> {
    lock: &'l Lock<'a, S, O>,
    seat: Seat,
}

impl<'a, S: System, O: Observer> Lock<'a, S, O> {
    pub fn new(parts: Parts<'a, O>, system: S) -> Lock<'a, S, O> {
        let Parts { policy, word, parkers, known, cores, observer, sees_all } = parts;
        let gate = Gate::new(1, policy, parkers, known, cores, observer, Word(word));
        Lock {
            word,
            mutex: Mutex::new(),
            sees_all,
            request: AtomicU32::new(0),
            switches: AtomicU64::new(0),
            inside: UnsafeCell::new(Inside { usage: Usage::Fresh, last: None, waiting: 0 }),
            cell: GateCell::new(gate),
            system,
        }
    }

    /// Takes the lock for the calling thread, whose number is nobody else's as long as the lock
    /// lives.
    #[inline]
    pub fn acquire(&self, seat: Seat) -> Held<'_, 'a, S, O> {
        let own = own_by(seat.who);
        // Acquire pairs with the Release in `release`.
        if self
            .word
            .compare_exchange(own, own | HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.acquire_shared(seat);
        }
        Held { lock: self, seat }
    }

    /// Whether the holder is to give way.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.request.load(Ordering::Relaxed) != 0
    }

    /// How often the lock went from one thread to another, where that was seen.
    pub fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    pub fn system(&self) -> &S {
        &self.system
    }

    fn guard(&self) -> MutexWith<'_, S> {
        self.mutex.with(&self.system)
    }

    /// # Safety
    /// The mutex is held, and no other result of this is in use.
    #[allow(clippy::mut_from_ref, reason = "the mutex makes it exclusive")]
    unsafe fn inside(&self) -> &mut Inside {
        // SAFETY: as the caller says.
        unsafe { &mut *self.inside.get() }
    }

    fn own(&self, seat: Seat, now: Nanos) -> Own {
        Own { seat, since: now, used: self.system.used_by(seat.who).unwrap_or(Nanos::ZERO) }
    }

    /// The lock is not one thread's own any more.
    ///
    /// # Safety
    /// The mutex is held, and no reference into the gate or what is beside it.
    unsafe fn share(&self) {
        // SAFETY: as the caller says; the reference ends here.
        let Some(own) = (unsafe { self.inside() }).usage.share() else { return };
        // Acquire pairs with the Release of the owner.
        let holds = self.word.fetch_or(SHARED, Ordering::Acquire) & HELD != 0;
        self.word.store(SHARED | if holds { HELD } else { 0 }, Ordering::Relaxed);
        let now = self.system.now();
        let used = self.system.used_by(own.seat.who);
        let computed = used.is_some_and(|used| own.computed(now, used));
        // SAFETY: as the caller says.
        unsafe { self.cell.gate() }.returned(&self.system, now, &own, computed, holds);
    }

    #[cold]
    fn acquire_shared(&self, seat: Seat) {
        let guard = self.guard();
        // SAFETY: this thread does not hold the mutex; what needs it held has it, and each reference
        // into what it guards ends with its statement.
        unsafe {
            guard.lock();
            if self.inside().usage.is_fresh() && !self.sees_all {
                self.inside().usage = Usage::Own(self.own(seat, self.system.now()));
                self.word.store(own_by(seat.who) | HELD, Ordering::Relaxed);
                guard.unlock();
                return;
            }
            self.share();
            while self.word.load(Ordering::Relaxed) & HELD != 0 {
                self.wait(&guard, seat);
            }
            self.word.store(SHARED | HELD, Ordering::Relaxed);
            let inside = self.inside();
            inside.usage.taken(seat.who);
            if inside.last.replace(seat.who) != Some(seat.who) {
                self.switches.fetch_add(1, Ordering::Relaxed);
            }
            self.cell.gate().acquired(&self.system, self.system.now(), seat);
            self.cell.announce_taken(&self.system);
            self.request.store(0, Ordering::Relaxed);
            guard.unlock();
        }
    }

    /// One wait, and a request if it ends with one.
    ///
    /// # Safety
    /// The calling thread is `seat` and holds `guard`, the mutex.
    unsafe fn wait(&self, guard: &MutexWith<'_, S>, seat: Seat) {
        let before = self.switches();
        // SAFETY: the guard is held, and each reference ends with its statement.
        let outcome = unsafe {
            self.inside().waiting += 1;
            let switches = || self.switches();
            let outcome = wait(&self.cell, guard, &self.system, seat, DEFAULT_INTERVAL, switches);
            self.inside().waiting -= 1;
            outcome
        };
        let is_held = self.word.load(Ordering::Relaxed) & HELD != 0;
        if outcome == Outcome::Ask && is_held && self.switches() == before {
            self.request.store(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn release(&self, seat: &Seat) {
        let own = own_by(seat.who);
        // Release pairs with the Acquire in `acquire` and `share`.
        if self
            .word
            .compare_exchange(own | HELD, own, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            self.release_shared(seat);
        }
    }

    #[cold]
    // By reference, so that the short way copies nothing.
    fn release_shared(&self, seat: &Seat) {
        let guard = self.guard();
        // SAFETY: as in `acquire_shared`.
        unsafe {
            guard.lock();
            self.word.store(SHARED, Ordering::Relaxed);
            let now = self.system.now();
            self.cell.released(&self.system, now, *seat);
            let inside = self.inside();
            let is_ripe = inside.waiting == 0 && inside.usage.is_ripe(seat.who);
            if is_ripe && !self.sees_all {
                inside.usage = Usage::Own(self.own(*seat, now));
                self.word.store(own_by(seat.who), Ordering::Relaxed);
            } else if self.is_asked() {
                self.request.store(0, Ordering::Relaxed);
                wait_for_switch(&self.cell, &guard, &self.system, Some(seat.who));
            }
            guard.unlock();
        }
    }
}

impl<S: System, O: Observer> Drop for Held<'_, '_, S, O> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release(&self.seat);
    }
}
