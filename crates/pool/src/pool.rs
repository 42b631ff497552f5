//! Who runs what next, who sleeps, and who is to be woken.
//!
//! State: one queue for what comes from outside and one for each worker, of what the work it does gives
//! rise to; and the *crew*: how many workers are *at work* (awake, not blocked in something that waits for
//! other work), and which sleep. At most `limit` are at work.
//!
//! - On `need`, after a `push`: if there is room in the crew, a sleeper is woken, or the caller is told to make a worker.
//! - On `next`: a worker takes the newest of its own queue, then the oldest from outside, then the oldest
//!   of another worker's (it *steals*).
//! - On `leave`, `unblock`: a worker that waits for other work makes room in the crew meanwhile, so that
//!   nested work of any depth goes on. When it is back there may be one too many at work; whoever next
//!   looks for work then goes to sleep.
//!
//! Nothing is lost between a worker that goes to sleep and a `push`: the one lowers the number of those at
//! work and then looks at the number of entries, the other raises the number of entries and then looks
//! at the number of those at work, all sequentially consistent. One of the two sees the other.
//!
//! A worker that was woken for nothing (whoever pushed has run it itself) *dozes* for a while: it
//! counts as at work, so that it is not woken for each of a thousand little things that are touched at
//! once.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::parker::{Parked, Parker};
use crate::primitive::{Arc, AtomicPtr, AtomicUsize, Mutex, Ordering, lock};
use crate::queue::Queue;

/// Queues of workers; those with higher numbers share them.
const QUEUES: usize = 64;

/// A worker that found nothing dozes so long, then twice that, and so on; then it sleeps. In
/// CPython a thread with a GIL would wait 5 ms for it in any case.
const DOZES: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4)];

/// Where an entry is queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    queue: u16,
    place: u64,
}

/// What the caller is to do, so that there is a worker for what waits.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    Nothing,
    /// Make a thread and have it call [`Pool::join`]; it is counted already. If that cannot be done:
    /// [`Pool::leave`].
    Worker,
}

/// How a rest has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// There may be work.
    Awake,
    /// Nobody wanted anything for so long that the worker is to end. It is not counted any more.
    Over,
}

/// One thread of the pool's.
#[derive(Debug)]
pub struct Worker {
    number: usize,
    parker: Arc<Parker>,
    /// How often in a row it found nothing.
    futile: usize,
}

#[derive(Debug)]
pub struct Pool<T> {
    /// From `Box::into_raw`; replaced in a forked child only.
    shared: AtomicPtr<Shared<T>>,
    /// It owns what is behind the pointer.
    _owns: PhantomData<Box<Shared<T>>>,
}

#[derive(Debug)]
struct Shared<T> {
    queues: Box<[Mutex<Queue<T>>]>,
    /// Entries in all queues.
    pending: AtomicUsize,
    /// Workers that are awake and not blocked.
    at_work: AtomicUsize,
    limit: AtomicUsize,
    joined: AtomicUsize,
    crew: Mutex<Crew>,
}

#[derive(Debug, Default)]
struct Crew {
    /// Who fell asleep last is woken first.
    asleep: Vec<Arc<Parker>>,
    dozing: Vec<Arc<Parker>>,
    /// Nobody sleeps any more: workers end when there is nothing to do.
    closed: bool,
}

impl<T> Shared<T> {
    fn new(limit: usize) -> Shared<T> {
        Shared {
            queues: (0..=QUEUES).map(|_| Mutex::new(Queue::default())).collect(),
            pending: AtomicUsize::new(0),
            at_work: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit.max(1)),
            joined: AtomicUsize::new(0),
            crew: Mutex::new(Crew::default()),
        }
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and nobody has a reference to it any more.
        drop(unsafe { Box::from_raw(self.shared.load(Ordering::Acquire)) });
    }
}

impl<T> Pool<T> {
    /// At most `limit` workers are at work; at least one is.
    pub fn new(limit: usize) -> Pool<T> {
        let shared = Box::into_raw(Box::new(Shared::new(limit)));
        Pool { shared: AtomicPtr::new(shared), _owns: PhantomData }
    }

    fn shared(&self) -> &Shared<T> {
        // SAFETY:
        // - It comes from `Box::into_raw`, in `new` or `after_fork`, and is never null.
        // - What it has pointed to once is freed only in `drop`, if it still points there; what
        //   `after_fork` replaces stays for ever. So the reference is good for as long as `self` is.
        unsafe { &*self.shared.load(Ordering::Acquire) }
    }

    /// In a child after a fork: nothing is queued, and there are no workers. Those of the parent are
    /// not here, and may have held locks, which nobody will ever give up; they are left alone, with all that
    /// was queued.
    pub fn after_fork(&self) {
        let fresh = Box::into_raw(Box::new(Shared::new(self.limit())));
        self.shared.store(fresh, Ordering::Release);
    }

    pub fn limit(&self) -> usize {
        self.shared().limit.load(Ordering::SeqCst)
    }

    /// Entries that nobody has taken.
    pub fn pending(&self) -> usize {
        self.shared().pending.load(Ordering::SeqCst)
    }

    /// Workers that are awake and not blocked.
    pub fn at_work(&self) -> usize {
        self.shared().at_work.load(Ordering::SeqCst)
    }

    /// With more, the caller asks what there is [`Pool::need`] of; with fewer, those at work first do what
    /// they are at.
    pub fn set_limit(&self, limit: usize) {
        self.shared().limit.store(limit.max(1), Ordering::SeqCst);
    }

    /// Queues an entry, from outside or by the work that a worker does. The caller then asks what there
    /// is [`Pool::need`] of.
    pub fn push(&self, item: T, by: Option<&Worker>) -> Ticket {
        let queue = by.map_or(0, |worker| 1 + worker.number % QUEUES);
        let shared = self.shared();
        let mut held = lock(&shared.queues[queue]);
        let place = held.push(item);
        // With the queue held, so that there is never less than is counted.
        shared.pending.fetch_add(1, Ordering::SeqCst);
        Ticket { queue: queue as u16, place }
    }

    /// Takes an entry out before its turn, if it is still there and `is` the one that is meant.
    pub fn take(&self, ticket: Ticket, is: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut held = lock(&self.shared().queues[usize::from(ticket.queue)]);
        let item = held.take(ticket.place, is);
        self.took(&item);
        item
    }

    fn took(&self, item: &Option<T>) {
        if item.is_some() {
            self.shared().pending.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Of each entry what `of` makes of it, queue by queue, the oldest first.
    pub fn list<R>(&self, of: impl Fn(&T) -> R) -> Vec<R> {
        let queues = self.shared().queues.iter();
        queues.flat_map(|queue| lock(queue).iter().map(&of).collect::<Vec<_>>()).collect()
    }

    /// Wakes a sleeper if something waits and there is room, or says that a worker is needed.
    pub fn need(&self) -> Need {
        if self.at_work() >= self.limit() || self.pending() == 0 {
            return Need::Nothing;
        }
        let mut crew = lock(&self.shared().crew);
        if self.at_work() >= self.limit() || self.pending() == 0 {
            return Need::Nothing;
        }
        self.shared().at_work.fetch_add(1, Ordering::SeqCst);
        let Some(sleeper) = crew.asleep.pop() else { return Need::Worker };
        drop(crew);
        sleeper.tell();
        Need::Nothing
    }

    /// Whoever dozes looks at once: somebody waits for what is queued.
    pub fn hurry(&self) {
        let dozing = std::mem::take(&mut lock(&self.shared().crew).dozing);
        for one in dozing {
            one.tell();
        }
    }

    /// A thread that was made because of [`Need::Worker`] begins.
    pub fn join(&self) -> Worker {
        let number = self.shared().joined.fetch_add(1, Ordering::Relaxed);
        Worker { number, parker: Arc::default(), futile: 0 }
    }

    /// A worker ends, could not be made, waits for other work or is lost: in each case there is room for
    /// another one, and the caller asks what there is [`Pool::need`] of.
    pub fn leave(&self) {
        self.shared().at_work.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a worker would find something.
    pub fn has_work(&self) -> bool {
        self.pending() > 0 && self.at_work() <= self.limit()
    }

    /// What the worker does next; `None`: nothing, it is to [`Pool::rest`].
    pub fn next(&self, worker: &mut Worker) -> Option<T> {
        // One too many: another one has come back from what it was blocked in.
        if self.at_work() > self.limit() {
            return None;
        }
        let own = 1 + worker.number % QUEUES;
        let newest = |queue: usize| {
            let item = lock(&self.shared().queues[queue]).pop_newest();
            self.took(&item);
            item
        };
        let oldest = |queue: usize| {
            let item = lock(&self.shared().queues[queue]).pop_oldest();
            self.took(&item);
            item
        };
        let others = (own + 1..=QUEUES).chain(1..own);
        let item = newest(own).or_else(|| oldest(0)).or_else(|| {
            if self.pending() == 0 {
                return None;
            }
            others.into_iter().find_map(oldest)
        });
        if item.is_some() {
            worker.futile = 0;
        }
        item
    }

    /// The worker has found nothing: it dozes, then sleeps; after `idle` of sleep it is over.
    pub fn rest(&self, worker: &mut Worker, idle: Duration) -> Rest {
        let too_many = self.at_work() > self.limit();
        // It was woken, and there was nothing to do.
        if !too_many && (1..=DOZES.len()).contains(&worker.futile) {
            let doze = DOZES[worker.futile - 1];
            worker.futile += 1;
            return self.doze(worker, doze);
        }
        worker.futile = 1;
        self.sleep(worker, idle)
    }

    fn doze(&self, worker: &Worker, doze: Duration) -> Rest {
        {
            let mut crew = lock(&self.shared().crew);
            if crew.closed {
                drop(crew);
                return self.ends();
            }
            crew.dozing.push(worker.parker.clone());
        }
        let until = Instant::now() + doze;
        while worker.parker.park(Some(until)) == Parked::Interrupted {}
        let mut crew = lock(&self.shared().crew);
        crew.dozing.retain(|one| !Arc::ptr_eq(one, &worker.parker));
        // It may have been told since.
        worker.parker.was_told();
        Rest::Awake
    }

    fn sleep(&self, worker: &Worker, idle: Duration) -> Rest {
        {
            let mut crew = lock(&self.shared().crew);
            if crew.closed {
                drop(crew);
                return self.ends();
            }
            crew.asleep.push(worker.parker.clone());
            self.shared().at_work.fetch_sub(1, Ordering::SeqCst);
        }
        // What was pushed before that was seen by nobody.
        if self.has_room() && self.sleeps_no_more(worker, 1) {
            return Rest::Awake;
        }
        let until = Instant::now().checked_add(idle);
        loop {
            match worker.parker.park(until) {
                Parked::Told => return Rest::Awake,
                Parked::Interrupted => {}
                // Whoever has taken it from among the sleepers tells it.
                Parked::TimedOut if !self.sleeps_no_more(worker, 0) => {}
                Parked::TimedOut => return Rest::Over,
            }
        }
    }

    /// A worker leaves, unless something was pushed before that was seen.
    fn ends(&self) -> Rest {
        self.leave();
        if self.has_room() {
            self.unblock();
            return Rest::Awake;
        }
        Rest::Over
    }

    fn has_room(&self) -> bool {
        self.pending() > 0 && self.at_work() < self.limit()
    }

    /// Takes the worker from among the sleepers, and counts so many more at work before anybody else
    /// looks for one; false: somebody has woken it already.
    fn sleeps_no_more(&self, worker: &Worker, at_work: usize) -> bool {
        let mut crew = lock(&self.shared().crew);
        let before = crew.asleep.len();
        crew.asleep.retain(|one| !Arc::ptr_eq(one, &worker.parker));
        let was_asleep = crew.asleep.len() < before;
        if was_asleep {
            self.shared().at_work.fetch_add(at_work, Ordering::SeqCst);
        }
        was_asleep
    }

    /// One that has left for other work is back.
    pub fn unblock(&self) {
        self.shared().at_work.fetch_add(1, Ordering::SeqCst);
    }

    /// Workers end when there is nothing left to do.
    pub fn close(&self) {
        let mut crew = lock(&self.shared().crew);
        crew.closed = true;
        let sleepers = std::mem::take(&mut crew.asleep);
        let dozing = std::mem::take(&mut crew.dozing);
        self.shared().at_work.fetch_add(sleepers.len(), Ordering::SeqCst);
        drop(crew);
        for one in sleepers.iter().chain(&dozing) {
            one.tell();
        }
    }
}
