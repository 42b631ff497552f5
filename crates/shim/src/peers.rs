//! Threads that wake each other: CPython's own locks, up to 3.13, are semaphores, and a thread that
//! waits for one has given the GIL up.
//!
//! **Who has woken whom.** The holder of the GIL posts a semaphore; one that waited for it comes, and
//! the policy is told who woke it.
//!
//! **A lock convoy.** A thread that was woken for a lock takes it before it has the GIL, and then
//! waits for the GIL with that lock in its hands. If the thread that woke it takes the same lock
//! again and again, as each `put` of a queue does, it finds it taken, has to give the GIL up, and
//! wakes the next one in that state: one switch of the GIL for each time that the lock is taken,
//! where a whole slice had none. So whoever is woken for a lock that the holder of the GIL takes again
//! and again leaves it there, and waits until that thread gives the GIL up: what it would do with
//! the lock it can do no sooner. (Blasgen et al. described such convoys in 1979, of locks that
//! are handed on; the remedy is theirs: who is woken has to come for the lock like everybody else.)
//!
//! What is noted here is a hint: two semaphores that have one place hide each other, and nothing
//! depends on it but who waits where for some milliseconds.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use deconvoy_gil::{AtomicU32, System};
use deconvoy_policy::timeout::DEFAULT_INTERVAL;
use deconvoy_policy::{MAX_THREADS, Nanos, WaiterId};

use crate::sys::{self, Linux};
use crate::threads::{self, Me, Slot};
use crate::{config, image, real};

/// What is known of a semaphore, of those who wait for it, and of those who left it to its poster.
pub struct Place {
    /// How many threads wait for it, or come from there and have not told a policy yet.
    awaited: AtomicU32,
    /// Who last posted it: see [`Post`].
    post: AtomicU64,
    /// Counts its posts while somebody waited for it.
    posts: AtomicU32,
    /// Goes up each time that it is posted again in one hold of the GIL while somebody waits for it, and
    /// down with each hold in which it is posted once.
    heat: AtomicU32,
    /// How many left it, and sleep on `released`.
    left: AtomicU32,
    /// Counts the holds of the GIL that ended since, of threads that posted it.
    released: AtomicU32,
}

const PLACES: usize = 512;

static ALL: [Place; PLACES] = [const {
    Place {
        awaited: AtomicU32::new(0),
        post: AtomicU64::new(0),
        posts: AtomicU32::new(0),
        heat: AtomicU32::new(0),
        left: AtomicU32::new(0),
        released: AtomicU32::new(0),
    }
}; PLACES];

/// A semaphore whose heat is this is one that is taken again and again.
const HOT: u32 = 8;
const HOTTEST: u32 = 255;
/// What it gains with each post but the first of a hold; the first costs it 1.
const AGAIN: u32 = 8;

/// One that leaves a semaphore to others does so for a slice, and a slice more for each that does the
/// same: it would not get the GIL sooner.
const SLICE: Nanos = DEFAULT_INTERVAL;

/// One post, in a word: the middle of the semaphore's address, in which of the poster's holds, and the
/// poster's number + 1. 0: none yet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Post(u64);

const _: () = assert!(MAX_THREADS < 0xffff);

impl Post {
    fn new(semaphore: usize, me: Me) -> Post {
        let hold = u64::from(me.slot.hold.load(Ordering::Relaxed) & 0xffff);
        Post((Post::key(semaphore) << 32) | (hold << 16) | u64::from((me.who.0 + 1) & 0xffff))
    }

    /// What tells semaphores apart: they are 32 bytes long and aligned to 8.
    fn key(semaphore: usize) -> u64 {
        (semaphore >> 3) as u64 & 0xffff_ffff
    }

    fn is_of(self, semaphore: usize) -> bool {
        self.0 >> 32 == Post::key(semaphore)
    }

    fn by(self) -> Option<WaiterId> {
        (self.0 as u32 & 0xffff).checked_sub(1).map(WaiterId)
    }

    /// Whether the poster's hold goes on.
    fn lasts(self, poster: &Slot) -> bool {
        // Acquire pairs with the Release of one that has taken the lock: if this is a later hold, its
        // number is seen.
        let holds = poster.holds.load(Ordering::Acquire) > 0;
        let hold = poster.hold.load(Ordering::Relaxed) & 0xffff;
        holds && u64::from(hold) == (self.0 >> 16) & 0xffff
    }
}

/// Neighbours in memory have places of their own, and so have stacks, which are megabytes apart.
fn index(semaphore: usize) -> usize {
    let key = Post::key(semaphore);
    (key ^ (key >> 9) ^ (key >> 18)) as usize % PLACES
}

/// There is a lock of an interpreter's. Before that nothing is noted.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

pub fn begin() {
    IS_BEGUN.store(true, Ordering::Relaxed);
}

/// The calling thread posts `semaphore`.
pub fn posts(semaphore: usize) {
    if !IS_BEGUN.load(Ordering::Relaxed) {
        return;
    }
    let index = index(semaphore);
    // A lock that nobody waits for costs no more than this.
    let Some(place) = ALL.get(index).filter(|place| place.awaited.load(Ordering::Relaxed) > 0)
    else {
        return;
    };
    let Some(me) = threads::holder() else { return place.wakes_one() };
    let post = Post::new(semaphore, me);
    let before = Post(place.post.load(Ordering::Relaxed));
    let heat = place.heat.load(Ordering::Relaxed);
    let heat = if post == before {
        heat.saturating_add(AGAIN).min(HOTTEST)
    } else if before.is_of(semaphore) {
        heat.saturating_sub(1)
    } else {
        0
    };
    place.post.store(post.0, Ordering::Relaxed);
    place.heat.store(heat, Ordering::Relaxed);
    place.posts.fetch_add(1, Ordering::Relaxed);
    if heat < HOT || !me.slot.notes_hot(index as u32 + 1) {
        place.wakes_one();
    }
}

impl Slot {
    /// The thread has posted the hot semaphore of this place, as index + 1, in its hold. Whether it is
    /// one of the two that are looked at when the hold ends.
    fn notes_hot(&self, place: u32) -> bool {
        let known = |hot: &AtomicU32| match hot.load(Ordering::Relaxed) {
            0 => {
                hot.store(place, Ordering::Relaxed);
                true
            }
            known => known == place,
        };
        self.hot.iter().any(known)
    }
}

/// The calling thread has given the GIL up, and says so in its slot: one of those who wait for that goes
/// on.
pub fn released(me: Me) {
    for hot in &me.slot.hot {
        let Some(index) = hot.load(Ordering::Relaxed).checked_sub(1) else { continue };
        hot.store(0, Ordering::Relaxed);
        // Pairs with the fence in `waits_for_release`: this sees that one asleep, or that one sees
        // the hold over.
        fence(Ordering::SeqCst);
        if let Some(place) = ALL.get(index as usize) {
            place.wakes_one();
        }
    }
}

/// The calling thread is about to wait for `semaphore`. Whether it may leave it to others.
pub fn waits(semaphore: usize) -> bool {
    if !IS_BEGUN.load(Ordering::Relaxed) {
        return false;
    }
    let Some(me) = threads::known() else { return false };
    // It waits on if a signal has interrupted it.
    if me.slot.awaits.load(Ordering::Relaxed) != semaphore {
        forget(me);
        let Some(place) = ALL.get(index(semaphore)) else { return false };
        place.awaited.fetch_add(1, Ordering::Relaxed);
        me.slot.awaits.store(semaphore, Ordering::Relaxed);
        me.slot.posts_before.store(place.posts.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    config::get().policy.is_some_and(|spec| spec.breaks_convoys())
}

/// What `me` waited for is of no interest any more; what it was.
pub fn forget(me: Me) -> Option<(usize, &'static Place)> {
    let semaphore = me.slot.awaits.load(Ordering::Relaxed);
    let place = ALL.get(index(semaphore)).filter(|_| semaphore != 0)?;
    me.slot.awaits.store(0, Ordering::Relaxed);
    me.slot.left_at.store(0, Ordering::Relaxed);
    one_less(&place.awaited);
    Some((semaphore, place))
}

/// A forked child begins again at zero, also if it was forked by a handler that interrupted a wait.
fn one_less(count: &AtomicU32) {
    let less = |count: u32| Some(count.saturating_sub(1));
    let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Who ended the wait that `me` comes from, if it was one for a semaphore that another thread has
/// posted meanwhile. Told once.
pub fn woke(me: Me) -> Option<WaiterId> {
    let (semaphore, place) = forget(me)?;
    if place.posts.load(Ordering::Relaxed) == me.slot.posts_before.load(Ordering::Relaxed) {
        return None;
    }
    let post = Post(place.post.load(Ordering::Relaxed));
    post.by().filter(|&by| post.is_of(semaphore) && by != me.who)
}

/// What a thread does that has just taken a semaphore.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It goes on.
    Returns = 0,
    /// It has put it back, and waits for it again.
    WaitsAgain = 1,
    /// It has put it back, and a signal came.
    IsInterrupted = 2,
}

/// The calling thread has taken `semaphore`, for a caller at that address.
///
/// # Safety
/// It is a semaphore, which the calling thread may post.
pub unsafe extern "C" fn taken(semaphore: *mut c_void, caller: usize) -> Then {
    // SAFETY: as the caller says.
    unsafe { leave(semaphore, caller) }.unwrap_or(Then::Returns)
}

/// Puts the semaphore back if another thread is to have it; `None`: it is the calling thread's.
///
/// # Safety
/// As for `taken`.
unsafe fn leave(semaphore: *mut c_void, caller: usize) -> Option<Then> {
    let place = ALL.get(index(semaphore as usize))?;
    let post = Post(place.post.load(Ordering::Relaxed));
    if place.heat.load(Ordering::Relaxed) < HOT || !post.is_of(semaphore as usize) {
        return None;
    }
    let me = threads::known()?;
    let poster = threads::other(post.by().filter(|&by| by != me.who)?)?.slot;
    let one_lock = poster.lock.load(Ordering::Relaxed) == me.slot.lock.load(Ordering::Relaxed);
    if !one_lock || !post.lasts(poster) || !image::is_of_interpreter(caller) {
        return None;
    }
    let now = Linux.now();
    let since = match me.slot.left_at.load(Ordering::Relaxed) {
        0 => now,
        since => Nanos(since),
    };
    me.slot.left_at.store(since.0, Ordering::Relaxed);
    let others = u64::from(place.left.load(Ordering::Relaxed)).min(MAX_THREADS as u64);
    let until = since.after(Nanos(SLICE.0.saturating_mul(1 + others)));
    // SAFETY: as the caller says.
    (now < until).then(|| unsafe { place.waits_for_release(semaphore, poster, post, until) })
}

impl Place {
    /// One of those that left it waits for it again, if there are any.
    fn wakes_one(&self) {
        if self.left.load(Ordering::Relaxed) > 0 {
            self.released.fetch_add(1, Ordering::Relaxed);
            Linux.futex_wake(&self.released, 1);
        }
    }

    /// # Safety
    /// As for `taken`.
    unsafe fn waits_for_release(
        &self,
        semaphore: *mut c_void,
        poster: &Slot,
        post: Post,
        until: Nanos,
    ) -> Then {
        // SAFETY: as the caller says; it is there until `sem_wait` has returned.
        unsafe { real::post(semaphore) };
        self.left.fetch_add(1, Ordering::Relaxed);
        let seen = self.released.load(Ordering::Relaxed);
        fence(Ordering::SeqCst); // See `released`.
        let interrupted =
            post.lasts(poster) && sys::wait_interruptibly(&self.released, seen, until);
        one_less(&self.left);
        if interrupted { Then::IsInterrupted } else { Then::WaitsAgain }
    }
}

/// In a forked child: who waits or has left a semaphore is not there.
pub fn forked() {
    for place in &ALL {
        place.left.store(0, Ordering::Relaxed);
        place.awaited.store(0, Ordering::Relaxed);
    }
}
