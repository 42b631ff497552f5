//! A small number for each thread that uses a lock, given when it first does and taken back when
//! it ends.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use deconvoy_gil::{Parker, Seat};
use deconvoy_policy::{MAX_THREADS, WaiterId};

use crate::names::{self, Inherited};
use crate::{config, host, locks, peers, real, rseq, ruby, sys, tracing};

/// What is kept of a thread. Written by the thread itself but for `priority`, `next_free` and, when
/// a lock is its own no more, `holds`; no two share a cache line, nor a pair of lines that a
/// processor fetches together.
#[repr(align(128))]
pub struct Slot {
    /// Which of the threads under this number it is; 0: none yet.
    pub generation: AtomicU32,
    pub native_id: AtomicU32,
    priority: AtomicU32,
    /// Where the core that it runs on is written down: see `rseq.rs`.
    pub core: AtomicUsize,
    /// Its record in the trace.
    pub trace: AtomicU32,
    /// The lock that it may be queued at without waiting there, as number + 1; 0: none.
    pub pending: AtomicU32,
    /// It is inside a hook: a signal handler that comes here meanwhile is passed through.
    pub busy: AtomicU32,
    /// Counts acquisitions, to look at the thread's name again now and then.
    pub acquired: AtomicU32,
    /// `switch_number` when its present wait began (watching only).
    pub switches: AtomicU64,
    /// 1: it holds a lock that it does not have to itself.
    pub holds: AtomicU32,
    pub inherited: Inherited,
    /// Who made it, as number + 1 in the low half and generation in the high one, until a policy
    /// was told; 0: not known.
    pub made_by: AtomicU64,
    /// The lock that it had last, as number + 1, and how often it has had one.
    pub lock: AtomicU32,
    pub hold: AtomicU32,
    /// The semaphore that it waited for last, until a policy was told; 0: none.
    pub awaits: AtomicUsize,
    /// How often that one had been posted by then.
    pub posts_before: AtomicU32,
    /// When it first left that semaphore to others; 0: it has not.
    pub left_at: AtomicU64,
    /// Those that it has posted in this hold and posts again and again: see `peers.rs`.
    pub hot: [AtomicU32; 2],
    /// 1: it wants Ruby's lock, and has not taken it yet.
    pub wants: AtomicU32,
    /// What it is doing at Ruby's lock: see `ruby/ticks.rs`; before 3.3, 1: it lets others go first.
    pub doing: AtomicU32,
    /// How often in a row it has yielded that lock as soon as it had it.
    pub yielded: AtomicU32,
    /// The condition variable that it waits on for that, where each thread has its own.
    pub cond: AtomicUsize,
    /// 1: it was told to look, since it began to wait.
    pub poked: AtomicU32,
    /// 1: it stays awake in that wait.
    pub awake: AtomicU32,
    /// How often it has looked in that wait whether the holder was asked.
    pub tries: AtomicU32,
    next_free: AtomicU32,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            generation: AtomicU32::new(0),
            native_id: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            core: AtomicUsize::new(0),
            trace: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            acquired: AtomicU32::new(0),
            switches: AtomicU64::new(0),
            holds: AtomicU32::new(0),
            inherited: Inherited::new(),
            made_by: AtomicU64::new(0),
            lock: AtomicU32::new(0),
            hold: AtomicU32::new(0),
            awaits: AtomicUsize::new(0),
            posts_before: AtomicU32::new(0),
            left_at: AtomicU64::new(0),
            hot: [const { AtomicU32::new(0) }; 2],
            wants: AtomicU32::new(0),
            doing: AtomicU32::new(0),
            yielded: AtomicU32::new(0),
            cond: AtomicUsize::new(0),
            poked: AtomicU32::new(0),
            awake: AtomicU32::new(0),
            tries: AtomicU32::new(0),
            next_free: AtomicU32::new(0),
        }
    }

    /// Who made the thread: number and generation. It is told once.
    pub fn take_maker(&self) -> Option<(WaiterId, u32)> {
        let packed = self.made_by.load(Ordering::Relaxed);
        if packed == 0 {
            return None;
        }
        self.made_by.store(0, Ordering::Relaxed);
        (packed as u32).checked_sub(1).map(|number| (WaiterId(number), (packed >> 32) as u32))
    }

    pub fn set_priority(&self, priority: i8) {
        self.priority.store(u32::from(priority.cast_unsigned()), Ordering::Relaxed);
    }
}

static SLOTS: [Slot; MAX_THREADS] = [const { Slot::new() }; MAX_THREADS];
pub static PARKERS: [Parker; MAX_THREADS] = [const { Parker::new() }; MAX_THREADS];

/// Numbers below this have been used.
static FRESH: AtomicU32 = AtomicU32::new(0);

/// A stack of numbers to use again: the top as number + 1 in the low half, a count of changes in
/// the high half, so that a top that came back is not taken for one that stayed (ABA).
static FREE: AtomicU64 = AtomicU64::new(0);

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The thread-specific key, as key + 1; 0: there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy)]
pub struct Me {
    pub who: WaiterId,
    pub slot: &'static Slot,
}

impl Me {
    fn at(number: u32) -> Option<Me> {
        SLOTS.get(number as usize).map(|slot| Me { who: WaiterId(number), slot })
    }

    pub fn seat(&self) -> Seat {
        Seat {
            who: self.who,
            generation: self.slot.generation.load(Ordering::Relaxed),
            priority: (self.slot.priority.load(Ordering::Relaxed) as u8).cast_signed(),
        }
    }

    pub fn trace(&self) -> u16 {
        self.slot.trace.load(Ordering::Relaxed) as u16
    }
}

/// Makes the key. Called once, from the constructor.
pub fn set_up() -> bool {
    let key = real::key_create(ended);
    KEY.store(key.map_or(0, |key| key + 1), Ordering::Relaxed);
    key.is_some()
}

/// The thread with this number.
pub fn other(who: WaiterId) -> Option<Me> {
    Me::at(who.0)
}

/// The calling thread; `None` when there are more threads than numbers.
pub fn me() -> Option<Me> {
    let key = KEY.load(Ordering::Relaxed).checked_sub(1)?;
    match real::get_specific(key) {
        0 => enrol(key),
        number => Me::at(number as u32 - 1),
    }
}

/// The calling thread, if it has a number.
pub fn known() -> Option<Me> {
    let key = KEY.load(Ordering::Relaxed).checked_sub(1)?;
    (real::get_specific(key) as u32).checked_sub(1).and_then(Me::at)
}

/// The calling thread, if it holds a lock of an interpreter's, or has one to itself.
pub fn holder() -> Option<Me> {
    // Whether a thread holds a lock that it has to itself is not noted.
    known().filter(|me| me.slot.holds.load(Ordering::Relaxed) > 0 || locks::has_own_unseen())
}

#[cold]
fn enrol(key: real::Key) -> Option<Me> {
    let me = Me::at(take_number()?)?;
    if !real::set_specific(key, me.who.0 as usize + 1) {
        give_back(me);
        return None;
    }
    begin(me);
    Some(me)
}

fn begin(me: Me) {
    let slot = me.slot;
    // 0 says that nobody was here.
    let generation = GENERATION.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    slot.generation.store(generation, Ordering::Relaxed);
    slot.native_id.store(sys::thread_id(), Ordering::Relaxed);
    slot.core.store(rseq::word(), Ordering::Relaxed);
    slot.pending.store(0, Ordering::Relaxed);
    slot.busy.store(0, Ordering::Relaxed);
    slot.acquired.store(0, Ordering::Relaxed);
    slot.trace.store(0, Ordering::Relaxed);
    slot.holds.store(0, Ordering::Relaxed);
    slot.made_by.store(0, Ordering::Relaxed);
    slot.lock.store(0, Ordering::Relaxed);
    slot.awaits.store(0, Ordering::Relaxed);
    slot.left_at.store(0, Ordering::Relaxed);
    slot.hot.iter().for_each(|hot| hot.store(0, Ordering::Relaxed));
    slot.wants.store(0, Ordering::Relaxed);
    slot.doing.store(0, Ordering::Relaxed);
    slot.yielded.store(0, Ordering::Relaxed);
    slot.cond.store(0, Ordering::Relaxed);
    slot.tries.store(0, Ordering::Relaxed);
    if let Some(parker) = PARKERS.get(me.who.0 as usize) {
        parker.forget();
    }
    tracing::start_thread(me);
    names::begin(me);
}

fn take_number() -> Option<u32> {
    let mut top = FREE.load(Ordering::Acquire);
    while let Some(number) = (top as u32).checked_sub(1) {
        let next = SLOTS.get(number as usize)?.next_free.load(Ordering::Relaxed);
        let new = ((top >> 32).wrapping_add(1) << 32) | u64::from(next);
        // Acquire pairs with the Release in `give_back`.
        match FREE.compare_exchange_weak(top, new, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => return Some(number),
            Err(now) => top = now,
        }
    }
    let fresh = FRESH.fetch_add(1, Ordering::Relaxed);
    if (fresh as usize) < MAX_THREADS {
        return Some(fresh);
    }
    FRESH.store(MAX_THREADS as u32, Ordering::Relaxed);
    None
}

fn give_back(me: Me) {
    let mut top = FREE.load(Ordering::Relaxed);
    loop {
        me.slot.next_free.store(top as u32, Ordering::Relaxed);
        let new = ((top >> 32).wrapping_add(1) << 32) | u64::from(me.who.0 + 1);
        // Release pairs with the Acquire in `take_number`: `next_free` is seen.
        match FREE.compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

/// The key's destructor: the thread ends.
unsafe extern "C" fn ended(number: *mut c_void) {
    if let Some(me) = (number as u32).checked_sub(1).and_then(Me::at) {
        end(me);
        give_back(me);
    }
}

fn end(me: Me) {
    host::thread_ended(me);
    peers::forget(me);
    ruby::thread_ended(me);
    locks::thread_ended();
    tracing::end_thread(me);
}

/// What the calling thread did as one thread of its interpreter's is over; what follows is another's.
pub fn renew(me: Me) {
    end(me);
    let busy = me.slot.busy.load(Ordering::Relaxed);
    begin(me);
    me.slot.busy.store(busy, Ordering::Relaxed);
}

/// In a forked child, where the calling thread is the only one.
pub fn forked() {
    let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) else { return };
    let used = FRESH.load(Ordering::Relaxed) as usize;
    for parker in PARKERS.iter().take(used) {
        parker.forked();
    }
    peers::forked();
    FREE.store(0, Ordering::Relaxed);
    if real::get_specific(key) == 0 {
        FRESH.store(0, Ordering::Relaxed);
        return;
    }
    FRESH.store(1, Ordering::Relaxed);
    if real::set_specific(key, 1)
        && let Some(me) = Me::at(0)
    {
        begin(me);
    }
}

/// What is kept of the thread with this native id, and where it waits, if it uses a lock.
pub fn find(native_id: u32) -> Option<(&'static Slot, &'static Parker)> {
    let used = FRESH.load(Ordering::Relaxed) as usize;
    let mut all = SLOTS.iter().zip(&PARKERS).take(used);
    all.find(|(slot, _)| slot.native_id.load(Ordering::Relaxed) == native_id)
}

/// The static priority that the policy in force gives a thread of this name.
pub fn classify(me: Me, name: &[u8]) {
    if let Some(spec) = config::get().policy {
        me.slot.set_priority(spec.priority(name, me.slot.native_id.load(Ordering::Relaxed)));
    }
}
