//! Which core a waiter sleeps on, and which it keeps off (`docs/design/003-home-core.md`).

use deconvoy_policy::Nanos;

use crate::System;
use crate::kept::Keep;

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
        if self.parallel {
            self.holder = system.core();
            if computes {
                self.home = self.holder;
            }
        }
    }

    /// The scheduler may have moved the holder.
    pub fn released(&mut self, system: &impl System) {
        self.holder = None;
        if self.parallel && self.computing {
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
        if !self.parallel {
            return (place, false);
        }
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
pub(crate) mod tests {
    use super::*;
    use crate::AtomicU32 as Word;
    use crate::Cores;
    use std::cell::RefCell;

    /// A system that keeps the calling thread's cores.
    pub struct Fake {
        pub allowed: RefCell<Cores>,
        pub core: Option<u32>,
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

    pub fn cores(list: &[u32]) -> Cores {
        let mut cores = [0; 16];
        for &core in list {
            cores[core as usize / 64] |= 1 << (core % 64);
        }
        cores
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
