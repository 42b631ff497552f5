//! Which core a waiter sleeps on, and which it keeps off (`docs/design/003-home-core.md`).

use deconvoy_policy::Nanos;

use crate::primitive::{AtomicU32, AtomicU64, Ordering, const_but_for_loom};
use crate::{Cores, System};

/// Where a thread may run, of the cores that it is allowed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    #[default]
    Anywhere,
    On(u32),
    Off(u32),
}

impl Keep {
    /// Not zero but for `Anywhere`.
    pub fn pack(self) -> u32 {
        match self {
            Keep::Anywhere => 0,
            Keep::On(core) => core * 2 + 1,
            Keep::Off(core) => core * 2 + 2,
        }
    }

    pub fn unpack(packed: u32) -> Keep {
        match packed.checked_sub(1) {
            None => Keep::Anywhere,
            Some(rest) if rest % 2 == 0 => Keep::On(rest / 2),
            Some(rest) => Keep::Off(rest / 2),
        }
    }

    /// What is left of `allowed`; `None`: nothing is.
    fn of(self, allowed: &Cores) -> Option<Cores> {
        let mut left = *allowed;
        let (Keep::On(core) | Keep::Off(core)) = self else { return Some(left) };
        let (at, bit) = (core as usize / 64, 1 << (core % 64));
        match self {
            Keep::Off(_) => *left.get_mut(at)? &= !bit,
            _ => {
                left = [0; 16];
                *left.get_mut(at)? = allowed.get(at)? & bit;
            }
        }
        left.iter().any(|&word| word != 0).then_some(left)
    }
}

/// Where a thread is kept, and the cores that it was allowed on before. The thread's own, but for
/// `allow`, and for `forget` in a forked child, in which the thread is not.
#[derive(Debug)]
pub struct Kept {
    /// A packed [`Keep`].
    keep: AtomicU32,
    before: Words,
    /// What was asked for. Another mask than this is somebody else's, and stays.
    asked: Words,
    /// Goes up before and after the thread is moved: odd in between.
    moves: AtomicU32,
}

#[derive(Debug)]
struct Words([AtomicU64; 16]);

impl Words {
    #[cfg(not(loom))]
    const fn new() -> Words {
        Words([const { AtomicU64::new(0) }; 16])
    }

    #[cfg(loom)]
    fn new() -> Words {
        Words(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn store(&self, cores: &Cores) {
        for (place, &word) in self.0.iter().zip(cores) {
            place.store(word, Ordering::Relaxed);
        }
    }

    fn load(&self) -> Cores {
        let mut cores: Cores = [0; 16];
        for (word, place) in cores.iter_mut().zip(&self.0) {
            *word = place.load(Ordering::Relaxed);
        }
        cores
    }
}

impl Kept {
    const_but_for_loom! {
        pub fn new() -> Kept {
            Kept {
                keep: AtomicU32::new(0),
                before: Words::new(),
                asked: Words::new(),
                moves: AtomicU32::new(0),
            }
        }
    }

    /// Keeps the calling thread where `keep` says, of the cores that it is allowed on; whether it
    /// is kept so now. A mask that somebody else has set meanwhile counts as allowed from then on.
    pub fn settle(&self, system: &impl System, keep: Keep) -> bool {
        let old = self.keep.load(Ordering::Relaxed);
        if old == keep.pack() {
            return true;
        }
        self.moves.fetch_add(1, Ordering::SeqCst);
        let settled = self.move_to(system, old, keep);
        self.moves.fetch_add(1, Ordering::SeqCst);
        settled
    }

    fn move_to(&self, system: &impl System, old: u32, keep: Keep) -> bool {
        let Some(present) = system.allowed() else { return false };
        let is_ours = old != Keep::Anywhere.pack() && present == self.asked.load();
        let allowed = if is_ours { self.before.load() } else { present };
        let Some(cores) = keep.of(&allowed) else { return false };
        if cores != present && !system.allow(&cores) {
            return false;
        }
        self.before.store(&allowed);
        self.asked.store(&cores);
        self.keep.store(keep.pack(), Ordering::Relaxed);
        true
    }

    /// Another thread sets on which cores this one may run: `set` does so and reads back what
    /// became of it, as often as this one moved meanwhile. Whatever it sets afterwards it sees as
    /// allowed. Lost if it moves between the end of `set` and that of this function, or at every
    /// try.
    pub fn allow(&self, system: &impl System, mut set: impl FnMut() -> Option<Cores>) {
        const TRIES: u32 = 64;
        for _ in 0..TRIES {
            let moves = self.moves.load(Ordering::SeqCst);
            let Some(cores) = set() else { return };
            if moves.is_multiple_of(2) && self.moves.load(Ordering::SeqCst) == moves {
                if self.keep.load(Ordering::Relaxed) != Keep::Anywhere.pack() {
                    self.before.store(&cores);
                }
                return;
            }
            system.yield_now();
        }
    }

    /// The thread is gone, and so is what was asked for it.
    pub fn forget(&self) {
        self.keep.store(Keep::Anywhere.pack(), Ordering::Relaxed);
    }
}

/// Where a waiter waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub keep: Keep,
    /// How it stays awake when it is told to.
    pub linger: Linger,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Linger {
    /// Not at all.
    #[default]
    Never,
    Spin,
    /// On the core on which the holder runs: it lets the holder go first.
    Yield,
}

/// Moving away that takes longer than this was of no use: the other cores are busy. (An idle one is
/// reached in 20 us; behind another thread it takes a scheduler's slice, 3 ms.)
const SLOW_MOVE: Nanos = Nanos::from_micros(300);

/// How long nobody moves after that, a slice; twice as long each time in a row, up to a limit at
/// which what it costs is below a thousandth.
const PAUSE: Nanos = Nanos::from_millis(5);
const LONGEST_PAUSE: Nanos = Nanos::from_millis(1_000);

/// The core on which a thread that computes had the lock last. Those that wait to compute next
/// sleep there, and those that do not compute keep off it while such a one holds the lock: the
/// scheduler would leave either behind the other, on one core, until the next tick.
#[derive(Debug)]
pub struct HomeCore {
    parallel: bool,
    home: Option<u32>,
    /// Where the holder took the lock, if it still has it.
    holder: Option<u32>,
    /// The holder computes, or the last one did if nobody holds the lock.
    computing: bool,
    moves_from: Nanos,
    pause: Nanos,
}

impl HomeCore {
    pub fn new(parallel: bool) -> HomeCore {
        HomeCore {
            parallel,
            home: None,
            holder: None,
            computing: false,
            moves_from: Nanos::ZERO,
            pause: Nanos::ZERO,
        }
    }

    pub fn acquired(&mut self, system: &impl System, computes: bool) {
        self.computing = computes;
        self.holder = system.core();
        if computes {
            self.home = self.holder;
        }
    }

    /// The scheduler may have moved the holder.
    pub fn released(&mut self, system: &impl System) {
        self.holder = None;
        if self.computing {
            self.home = system.core();
        }
    }

    /// The place of a waiter; `held`: somebody has the lock.
    pub fn place(&self, computes: bool, held: bool) -> Place {
        let Some(home) = self.home.filter(|_| self.parallel) else {
            let linger = if self.parallel { Linger::Spin } else { Linger::Never };
            return Place { keep: Keep::Anywhere, linger };
        };
        let behind_a_computing_holder = self.computing && held;
        match (computes, behind_a_computing_holder) {
            (true, true) => Place { keep: Keep::On(home), linger: Linger::Yield },
            (true, false) => Place { keep: Keep::On(home), linger: Linger::Spin },
            (false, true) => Place { keep: Keep::Off(home), linger: Linger::Spin },
            (false, false) => Place { keep: Keep::Anywhere, linger: Linger::Spin },
        }
    }

    /// Where the last holder sleeps while another is to take the lock.
    pub fn keep_of_last(&self) -> Keep {
        self.place(self.computing, false).keep
    }

    pub fn is_parallel(&self) -> bool {
        self.parallel
    }

    /// Another thread than the holder says who has the lock: where it runs is not known.
    pub fn acquired_elsewhere(&mut self) {
        (self.home, self.holder, self.computing) = (None, None, false);
    }

    /// The place for the calling thread, and whether it is to go there before it waits. One that
    /// stays where the holder was running must not stay awake there: it keeps the holder from it.
    pub fn place_here(&self, system: &impl System, place: Place) -> (Place, bool) {
        let here = system.core();
        match place.keep {
            Keep::Off(home) if here == Some(home) => {
                if system.now() >= self.moves_from {
                    (place, true)
                } else {
                    (Place { keep: Keep::Anywhere, linger: Linger::Never }, false)
                }
            }
            _ if here.is_some() && here == self.holder && place.linger == Linger::Spin => {
                (Place { linger: Linger::Never, ..place }, false)
            }
            _ => (place, false),
        }
    }

    /// A waiter has moved, from `begun` to `ended`.
    pub fn moved(&mut self, begun: Nanos, ended: Nanos) {
        self.pause = if ended.since(begun) > SLOW_MOVE {
            Nanos((self.pause.0 * 2).clamp(PAUSE.0, LONGEST_PAUSE.0))
        } else {
            Nanos::ZERO
        };
        self.moves_from = ended.after(self.pause);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::AtomicU32 as Word;
    use std::cell::RefCell;

    /// A system that keeps the calling thread's cores.
    struct Fake {
        allowed: RefCell<Cores>,
        core: Option<u32>,
    }

    impl System for Fake {
        fn now(&self) -> Nanos {
            Nanos(1_000_000)
        }
        fn futex_wait(&self, _: &Word, _: u32, _: Option<Nanos>) {}
        fn futex_wake(&self, _: &Word, _: u32) {}
        fn core(&self) -> Option<u32> {
            self.core
        }
        fn allowed(&self) -> Option<Cores> {
            Some(*self.allowed.borrow())
        }
        fn allow(&self, cores: &Cores) -> bool {
            *self.allowed.borrow_mut() = *cores;
            true
        }
    }

    fn cores(list: &[u32]) -> Cores {
        let mut cores = [0; 16];
        for &core in list {
            cores[core as usize / 64] |= 1 << (core % 64);
        }
        cores
    }

    #[test]
    fn what_was_allowed_comes_back() {
        let before = cores(&[0, 3, 64, 1023]);
        let system = Fake { allowed: RefCell::new(before), core: None };
        let kept = Kept::new();
        for (keep, expected) in [
            (Keep::On(64), cores(&[64])),
            (Keep::Off(64), cores(&[0, 3, 1023])),
            (Keep::On(1023), cores(&[1023])),
            (Keep::Anywhere, before),
        ] {
            assert!(kept.settle(&system, keep), "{keep:?}");
            assert_eq!(*system.allowed.borrow(), expected, "{keep:?}");
            assert_eq!(Keep::unpack(keep.pack()), keep);
        }
    }

    #[test]
    fn what_somebody_else_has_set_meanwhile_stays() {
        let system = Fake { allowed: RefCell::new(cores(&[0, 1, 2])), core: None };
        let kept = Kept::new();
        assert!(kept.settle(&system, Keep::On(1)));
        *system.allowed.borrow_mut() = cores(&[0, 2]);
        assert!(kept.settle(&system, Keep::Off(0)));
        assert_eq!(*system.allowed.borrow(), cores(&[2]));
        assert!(kept.settle(&system, Keep::Anywhere));
        assert_eq!(*system.allowed.borrow(), cores(&[0, 2]));
    }

    #[test]
    fn nobody_is_kept_where_it_may_not_run() {
        let before = cores(&[5]);
        let system = Fake { allowed: RefCell::new(before), core: None };
        let kept = Kept::new();
        for keep in [Keep::On(4), Keep::Off(5), Keep::On(1024), Keep::On(u32::MAX / 4)] {
            assert!(!kept.settle(&system, keep), "{keep:?}");
            assert_eq!(*system.allowed.borrow(), before, "{keep:?}");
        }
    }

    #[test]
    fn who_does_not_compute_leaves_the_home_core_unless_the_others_are_busy() {
        let system = Fake { allowed: RefCell::new(cores(&[0, 1])), core: Some(1) };
        let mut home = HomeCore::new(true);
        home.acquired(&system, true);
        let place = home.place(false, true);
        assert_eq!(place, Place { keep: Keep::Off(1), linger: Linger::Spin });
        assert_eq!(home.place_here(&system, place), (place, true));
        home.moved(Nanos(0), Nanos(990_000));
        let stays = Place { keep: Keep::Anywhere, linger: Linger::Never };
        assert_eq!(home.place_here(&system, place), (stays, false));
        home.moved(Nanos(990_000), Nanos(995_000));
        assert_eq!(home.place_here(&system, place), (place, true));
    }

    #[test]
    fn nobody_stays_awake_where_the_holder_runs() {
        let at = |core| Fake { allowed: RefCell::new(cores(&[0, 1])), core: Some(core) };
        let mut home = HomeCore::new(true);
        home.acquired(&at(1), false);
        let place = home.place(false, true);
        assert_eq!(home.place_here(&at(0), place).0.linger, Linger::Spin);
        assert_eq!(home.place_here(&at(1), place).0.linger, Linger::Never);
        home.released(&at(1));
        assert_eq!(home.place_here(&at(1), place).0.linger, Linger::Spin);
    }

    #[test]
    fn on_one_core_everybody_sleeps() {
        let system = Fake { allowed: RefCell::new(cores(&[0])), core: Some(0) };
        let mut home = HomeCore::new(false);
        home.acquired(&system, true);
        for computes in [false, true] {
            let place = Place { keep: Keep::Anywhere, linger: Linger::Never };
            assert_eq!(home.place(computes, true), place);
        }
    }
}
