//! From events to waits and holds, each seen once, in order of their ends.
//!
//! A wait lasts from a thread's first `Arrive` to its `Acquire`. Behind whom it waited is found by
//! overlap with the holds of the same lock, of which each lock keeps the last few: a wait that
//! spans more of them has an unattributed part, so that the work a wait takes is bounded, however
//! many threads queue.

use std::collections::VecDeque;

use crate::analyse::kinds::Kinds;
use crate::format::{Event, Kind, MAX_LOCKS};
use crate::read::Trace;

use super::answers::Deaf;

/// As many holds as are looked back on: more than a hundred threads in turn, while a trace of
/// five million events stays a matter of seconds.
const LOOK_BACK: usize = 128;

/// Where an ordinary wait ends for a reason that is not an interval's end: of CPython's own timed
/// wait, one that returned before this share of the interval was woken.
const EARLY: f64 = 0.9;

#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub thread: u16,
    pub since_ns: u64,
    pub until_ns: u64,
    /// From the first drop request to the release.
    pub answer_ns: Option<u64>,
    /// Both ends were seen.
    pub whole: bool,
}

impl Hold {
    pub fn length_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.since_ns)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub thread: u16,
    pub since_ns: u64,
    pub until_ns: u64,
    /// It ended with the lock.
    pub whole: bool,
    pub lock_free_ns: u64,
    pub unattributed_ns: u64,
    /// Behind holders that were slow to heed a drop request.
    pub behind_slow_ns: u64,
    /// Beyond the end of CPython's own timed wait, each time: the system gave the waiter no
    /// processor.
    pub late_ns: u64,
}

impl Wait {
    pub fn length_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.since_ns)
    }
}

/// A part of a wait: how long that thread held the lock meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    pub thread: u16,
    pub total_ns: u64,
    /// In holds of at least `long_hold_ns`, and not after a slow answer.
    pub long_ns: u64,
}

/// Takes in what a walk finds. Threads of one kind are one thread to it.
pub trait Visitor {
    /// Whether the waits of this thread matter.
    fn wants(&self, waiter: u16) -> bool;
    fn wait(&mut self, wait: &Wait, behind: &[Behind]);
    /// `waiting`: who waits for the lock at the end of the hold, and since when.
    fn hold(&mut self, hold: &Hold, waiting: &mut dyn Iterator<Item = (u16, u64)>);
    /// A thread was woken, and another one had the lock.
    fn failed_wakeup(&mut self, thread: u16);
    /// `from` released on request, and `to` has the lock.
    fn switch_on_request(&mut self, from: u16, to: u16);
}

/// What the walk needs to know of the trace.
#[derive(Clone, Copy)]
pub struct Limits<'l> {
    pub interval_ns: u64,
    pub long_hold_ns: u64,
    pub kinds: &'l Kinds,
    pub deaf: &'l Deaf,
}

#[derive(Clone, Copy)]
struct Holder {
    thread: u16,
    since_ns: u64,
    asked_ns: Option<u64>,
}

#[derive(Default)]
struct Lock {
    holder: Option<Holder>,
    log: VecDeque<Hold>,
    /// Holds that have left the log.
    dropped: usize,
    waiting: Vec<u16>,
    released_on_request: Option<u16>,
}

#[derive(Clone, Copy)]
struct Waiter {
    lock: u8,
    since_ns: u64,
    /// The hold, by its number, that it found.
    first_hold: usize,
    /// In `Lock::waiting`.
    place: usize,
    arrived_ns: u64,
    asked: bool,
    woken: bool,
    late_ns: u64,
}

impl Waiter {
    /// It has come back from a timed wait of CPython's own.
    fn back_from_wait(&mut self, at_ns: u64, interval_ns: u64) {
        let late_ns = at_ns.saturating_sub(self.arrived_ns).saturating_sub(interval_ns);
        self.late_ns = self.late_ns.saturating_add(late_ns);
    }
}

struct Walk<'v, V> {
    visitor: &'v mut V,
    limits: Limits<'v>,
    stock: bool,
    from_ns: u64,
    locks: Vec<Lock>,
    waiters: Vec<Option<Waiter>>,
    behind: Vec<Behind>,
    /// Where a thread is in `behind`, as place + 1.
    places: Vec<u32>,
}

/// Goes through all events of a trace.
pub fn walk<'v, V: Visitor>(trace: &Trace, limits: Limits<'v>, visitor: &'v mut V) {
    let threads = trace.events.iter().map(|event| usize::from(event.thread) + 1).max();
    let threads = threads.unwrap_or(0);
    let mut walk = Walk {
        visitor,
        limits,
        stock: trace.about.stock,
        from_ns: trace.covered_from_ns(),
        locks: (0..MAX_LOCKS).map(|_| Lock::default()).collect(),
        waiters: vec![None; threads],
        behind: Vec::new(),
        places: vec![0; threads],
    };
    for event in &trace.events {
        walk.event(event);
    }
    walk.finish(trace.end_ns);
}

impl<V: Visitor> Walk<'_, V> {
    fn lock(&mut self, lock: u8) -> &mut Lock {
        // There is one for each value of a byte.
        &mut self.locks[usize::from(lock)]
    }

    fn waiter(&mut self, thread: u16) -> &mut Option<Waiter> {
        // As long as the highest number in the events.
        &mut self.waiters[usize::from(thread)]
    }

    fn event(&mut self, event: &Event) {
        let Event { at_ns, thread, lock, .. } = *event;
        match event.kind {
            Kind::Arrive => self.arrive(at_ns, thread, lock),
            Kind::Acquire => self.acquire(at_ns, thread, lock),
            Kind::Release => self.release(at_ns, thread, lock, event.argument != 0),
            Kind::Ask => self.ask(at_ns, thread, lock),
            Kind::Wake | Kind::Grant => {
                if let Some(waiter) = self.waiter(thread).as_mut() {
                    waiter.woken = true;
                }
            }
            Kind::Start | Kind::End | Kind::Leave => {
                self.gone(thread);
            }
            Kind::LockStart => *self.lock(lock) = Lock::default(),
            _ => {}
        }
    }

    fn arrive(&mut self, at_ns: u64, thread: u16, lock: u8) {
        let early_ns = (self.limits.interval_ns as f64 * EARLY) as u64;
        let (stock, interval_ns) = (self.stock, self.limits.interval_ns);
        if let Some(waiter) = self.waiter(thread).as_mut().filter(|waiter| waiter.lock == lock) {
            let early = at_ns.saturating_sub(waiter.arrived_ns) < early_ns;
            let failed = !waiter.asked && (waiter.woken || (stock && early));
            if stock && !waiter.asked {
                waiter.back_from_wait(at_ns, interval_ns);
            }
            (waiter.arrived_ns, waiter.asked, waiter.woken) = (at_ns, false, false);
            if failed {
                self.visitor.failed_wakeup(self.limits.kinds.kind(thread));
            }
            return;
        }
        self.gone(thread);
        let found = self.lock(lock);
        let first_hold = found.dropped + found.log.len();
        let place = found.waiting.len();
        found.waiting.push(thread);
        *self.waiter(thread) = Some(Waiter {
            lock,
            since_ns: at_ns,
            first_hold,
            place,
            arrived_ns: at_ns,
            asked: false,
            woken: false,
            late_ns: 0,
        });
    }

    /// Takes a thread out of the list of those who wait.
    fn gone(&mut self, thread: u16) -> Option<Waiter> {
        let waiter = self.waiter(thread).take()?;
        let waiting = &mut self.lock(waiter.lock).waiting;
        // The list is begun anew with the lock, and may know nothing of an earlier waiter.
        if waiting.get(waiter.place) == Some(&thread) {
            waiting.swap_remove(waiter.place);
            if let Some(&moved) = waiting.get(waiter.place)
                && let Some(moved) = self.waiter(moved).as_mut()
            {
                moved.place = waiter.place;
            }
        }
        Some(waiter)
    }

    fn acquire(&mut self, at_ns: u64, thread: u16, lock: u8) {
        // A release that was not seen: the holder ended with the lock, or the event is torn.
        self.end_hold(at_ns, lock, false);
        if let Some(waiter) = self.gone(thread) {
            self.end_wait(at_ns, thread, waiter, true);
        }
        let taken = self.lock(lock);
        taken.holder = Some(Holder { thread, since_ns: at_ns, asked_ns: None });
        if let Some(from) = taken.released_on_request.take()
            && from != thread
        {
            let kinds = self.limits.kinds;
            self.visitor.switch_on_request(kinds.kind(from), kinds.kind(thread));
        }
    }

    fn release(&mut self, at_ns: u64, thread: u16, lock: u8, asked: bool) {
        let from_ns = self.from_ns;
        let released = self.lock(lock);
        let seen = released.holder.is_some_and(|holder| holder.thread == thread);
        if released.holder.is_none() && released.log.is_empty() {
            // Held since before the first event.
            released.holder = Some(Holder { thread, since_ns: from_ns, asked_ns: None });
        }
        released.released_on_request = asked.then_some(thread);
        self.end_hold(at_ns, lock, seen);
    }

    fn ask(&mut self, at_ns: u64, thread: u16, lock: u8) {
        if let Some(holder) = &mut self.lock(lock).holder {
            holder.asked_ns = holder.asked_ns.or(Some(at_ns));
        }
        let (stock, interval_ns) = (self.stock, self.limits.interval_ns);
        if let Some(waiter) = self.waiter(thread).as_mut() {
            waiter.asked = true;
            if stock {
                waiter.back_from_wait(at_ns, interval_ns);
            }
        }
    }

    fn end_hold(&mut self, at_ns: u64, lock: u8, whole: bool) {
        let found = &mut self.locks[usize::from(lock)];
        let Some(holder) = found.holder.take() else { return };
        let kinds = self.limits.kinds;
        let hold = Hold {
            thread: kinds.kind(holder.thread),
            since_ns: holder.since_ns,
            until_ns: at_ns,
            answer_ns: holder.asked_ns.map(|asked_ns| at_ns.saturating_sub(asked_ns)),
            whole,
        };
        let waiters = &self.waiters;
        let mut waiting = found.waiting.iter().filter_map(|&thread| {
            let waiter = waiters.get(usize::from(thread))?.as_ref()?;
            Some((kinds.kind(thread), waiter.since_ns))
        });
        self.visitor.hold(&hold, &mut waiting);
        found.log.push_back(hold);
        if found.log.len() > LOOK_BACK {
            found.log.pop_front();
            found.dropped += 1;
        }
    }

    fn end_wait(&mut self, at_ns: u64, thread: u16, waiter: Waiter, whole: bool) {
        let limits = self.limits;
        let thread = limits.kinds.kind(thread);
        if !self.visitor.wants(thread) {
            return;
        }
        let lock = &self.locks[usize::from(waiter.lock)];
        let mut wait = Wait {
            thread,
            since_ns: waiter.since_ns,
            until_ns: at_ns,
            whole,
            lock_free_ns: 0,
            unattributed_ns: 0,
            behind_slow_ns: 0,
            late_ns: waiter.late_ns,
        };
        if waiter.first_hold < lock.dropped {
            let known_ns = lock.log.front().map_or(at_ns, |hold| hold.since_ns);
            wait.unattributed_ns = known_ns.saturating_sub(wait.since_ns);
        }
        let mut behind_ns = wait.unattributed_ns;
        for hold in lock.log.iter().skip(waiter.first_hold.saturating_sub(lock.dropped)) {
            let overlap_ns =
                hold.until_ns.min(at_ns).saturating_sub(hold.since_ns.max(wait.since_ns));
            if overlap_ns == 0 {
                continue;
            }
            let slow_ns = limits.deaf.slow_ns(hold.thread);
            let slow = hold.answer_ns.is_some_and(|answer_ns| answer_ns >= slow_ns);
            if slow {
                wait.behind_slow_ns = wait.behind_slow_ns.saturating_add(overlap_ns);
            }
            let long = !slow && hold.length_ns() >= limits.long_hold_ns;
            let place = &mut self.places[usize::from(hold.thread)];
            if *place == 0 {
                self.behind.push(Behind { thread: hold.thread, total_ns: 0, long_ns: 0 });
                *place = self.behind.len() as u32;
            }
            let behind = &mut self.behind[*place as usize - 1];
            behind.total_ns = behind.total_ns.saturating_add(overlap_ns);
            behind.long_ns = behind.long_ns.saturating_add(if long { overlap_ns } else { 0 });
            behind_ns = behind_ns.saturating_add(overlap_ns);
        }
        wait.lock_free_ns = wait.length_ns().saturating_sub(behind_ns);
        self.visitor.wait(&wait, &self.behind);
        for behind in self.behind.drain(..) {
            self.places[usize::from(behind.thread)] = 0;
        }
    }

    /// What goes on when the trace ends has lasted until then.
    fn finish(&mut self, end_ns: u64) {
        for lock in 0..=u8::MAX {
            self.end_hold(end_ns, lock, false);
        }
        for thread in 0..self.waiters.len() {
            let thread = thread as u16;
            if let Some(waiter) = self.gone(thread) {
                self.end_wait(end_ns, thread, waiter, false);
            }
        }
    }
}
