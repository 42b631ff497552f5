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
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use deconvoy_gil::{AtomicU32, System};
use deconvoy_policy::{Nanos, WaiterId};

use crate::sys::{self, Linux};
use crate::threads::{self, Me, Slot};
use crate::{config, loader, real};

/// What is known of a semaphore, of those who wait for it, and of those who left it to its poster.
pub struct Place {
    /// How many threads wait for it, or come from there and have not told a policy yet.
    awaited: AtomicU32,
    /// Who last posted it: see [`Post`].
    post: AtomicU64,
    /// How often it was posted again in one hold of the GIL while somebody waited for it, and lately.
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
const SLICE: Nanos = Nanos::from_millis(5);

/// One post, in a word: the middle of the semaphore's address, in which of the poster's holds, and the
/// poster's number + 1. 0: none yet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Post(u64);

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
        let hold = poster.hold.load(Ordering::Relaxed) & 0xffff;
        poster.holds.load(Ordering::SeqCst) > 0 && u64::from(hold) == self.0 >> 16 & 0xffff
    }
}

/// Neighbours in memory have places of their own, and so have stacks, which are megabytes apart.
fn index(semaphore: usize) -> usize {
    let key = Post::key(semaphore);
    (key ^ (key >> 9) ^ (key >> 18)) as usize % PLACES
}

/// The calling thread posts `semaphore`.
pub fn posts(semaphore: usize) {
    let index = index(semaphore);
    // A lock that nobody waits for costs no more than this.
    let Some(place) = ALL.get(index).filter(|place| place.awaited.load(Ordering::Relaxed) > 0)
    else {
        return;
    };
    let Some(me) = threads::holder() else { return };
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
    if heat >= HOT {
        me.slot.note_hot(index as u32 + 1);
    }
}

impl Slot {
    /// The thread has posted the hot semaphore of this place, as index + 1, in its hold. Of more than two
    /// those that leave them look by themselves.
    fn note_hot(&self, place: u32) {
        let [first, second] = &self.hot;
        match first.load(Ordering::Relaxed) {
            0 => first.store(place, Ordering::Relaxed),
            known if known == place => {}
            _ => second.store(place, Ordering::Relaxed),
        }
    }
}

/// The calling thread has given the GIL up, and says so in its slot: one of those who wait for that goes
/// on.
pub fn released(me: Me) {
    for hot in &me.slot.hot {
        let Some(index) = hot.load(Ordering::Relaxed).checked_sub(1) else { continue };
        hot.store(0, Ordering::Relaxed);
        let Some(place) = ALL.get(index as usize) else { continue };
        // Pairs with the fence in `waits_for_release`: this sees that one asleep, or that one sees
        // the hold over.
        fence(Ordering::SeqCst);
        if place.left.load(Ordering::Relaxed) > 0 {
            place.released.fetch_add(1, Ordering::Relaxed);
            Linux.futex_wake(&place.released, 1);
        }
    }
}

/// The calling thread is about to wait for `semaphore`.
pub fn waits(semaphore: usize) {
    let Some(me) = threads::known() else { return };
    forget(me);
    if let Some(place) = ALL.get(index(semaphore)) {
        place.awaited.fetch_add(1, Ordering::Relaxed);
        me.slot.awaits.store(semaphore, Ordering::Relaxed);
        me.slot.left_at.store(0, Ordering::Relaxed);
    }
}

/// What `me` waited for is of no interest any more; what it was.
pub fn forget(me: Me) -> Option<(usize, &'static Place)> {
    let semaphore = me.slot.awaits.load(Ordering::Relaxed);
    let place = ALL.get(index(semaphore)).filter(|_| semaphore != 0)?;
    me.slot.awaits.store(0, Ordering::Relaxed);
    place.awaited.fetch_sub(1, Ordering::Relaxed);
    Some((semaphore, place))
}

/// Who ended the wait that `me` comes from, if it was one for a semaphore that another thread
/// posted. Told once.
pub fn woke(me: Me) -> Option<WaiterId> {
    let (semaphore, place) = forget(me)?;
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
pub unsafe extern "C" fn taken(semaphore: *mut c_void, caller: usize) -> Then {
    leave(semaphore, caller).unwrap_or(Then::Returns)
}

/// Puts the semaphore back if another thread is to have it; `None`: it is the calling thread's.
fn leave(semaphore: *mut c_void, caller: usize) -> Option<Then> {
    if !config::is_on() || !config::get().policy.is_some_and(|spec| spec.breaks_convoys()) {
        return None;
    }
    let place = ALL.get(index(semaphore as usize))?;
    let post = Post(place.post.load(Ordering::Relaxed));
    if place.heat.load(Ordering::Relaxed) < HOT || !post.is_of(semaphore as usize) {
        return None;
    }
    let me = threads::known()?;
    let poster = threads::other(post.by().filter(|&by| by != me.who)?)?.slot;
    let one_lock = poster.lock.load(Ordering::Relaxed) == me.slot.lock.load(Ordering::Relaxed);
    if !one_lock || !post.lasts(poster) || !is_of_interpreter(caller) {
        return None;
    }
    let now = Linux.now();
    let since = match me.slot.left_at.load(Ordering::Relaxed) {
        0 => now,
        since => Nanos(since),
    };
    me.slot.left_at.store(since.0, Ordering::Relaxed);
    let others = u64::from(place.left.load(Ordering::Relaxed));
    let until = since.after(Nanos(SLICE.0.saturating_mul(1 + others)));
    (now < until).then(|| place.waits_for_release(semaphore, poster, post, until))
}

impl Place {
    fn waits_for_release(
        &self,
        semaphore: *mut c_void,
        poster: &Slot,
        post: Post,
        until: Nanos,
    ) -> Then {
        // SAFETY: the caller of `sem_wait` has taken it, and it is there until that one has returned.
        unsafe { real::post(semaphore) };
        self.left.fetch_add(1, Ordering::Relaxed);
        let seen = self.released.load(Ordering::Relaxed);
        fence(Ordering::SeqCst); // See `released`.
        let interrupted =
            post.lasts(poster) && sys::wait_interruptibly(&self.released, seen, until);
        self.left.fetch_sub(1, Ordering::Relaxed);
        if interrupted { Then::IsInterrupted } else { Then::WaitsAgain }
    }
}

/// Whether the code at that address is the interpreter's, which needs the GIL next. What another library
/// waits for it may need without.
fn is_of_interpreter(caller: usize) -> bool {
    /// The last such address: there are one or two.
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    if KNOWN.load(Ordering::Relaxed) == caller {
        return true;
    }
    let interpreter = loader::symbol(c"_PyRuntime");
    let is = !interpreter.is_null() && loader::are_together(caller, interpreter as usize);
    if is {
        KNOWN.store(caller, Ordering::Relaxed);
    }
    is
}

/// In a forked child: who waits or has left a semaphore is not there.
pub fn forked() {
    for place in &ALL {
        place.left.store(0, Ordering::Relaxed);
        place.awaited.store(0, Ordering::Relaxed);
    }
}
