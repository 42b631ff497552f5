//! Which core a waiter sleeps on, and which it keeps off: what a driver that has several cores does
//! beside the policy (`docs/design/003-home-core.md`).

use crate::Nanos;

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

/// Who gets a lock that was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nobody yet, or one that has to wake up first.
    Sleeps = 0,
    /// One that is awake on another core, and takes it in a moment.
    IsAwake = 1,
    /// One that is kept on the core of the last holder.
    SharesTheCore = 2,
}

impl Next {
    pub fn unpack(packed: u32) -> Next {
        match packed {
            _ if packed == Next::IsAwake as u32 => Next::IsAwake,
            _ if packed == Next::SharesTheCore as u32 => Next::SharesTheCore,
            _ => Next::Sleeps,
        }
    }
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

    /// A thread has taken the lock on the core `here`.
    pub fn acquired(&mut self, here: Option<u32>, computes: bool) {
        self.computing = computes;
        if self.parallel {
            self.holder = here;
            if computes {
                self.home = self.holder;
            }
        }
    }

    /// The scheduler may have moved the holder.
    pub fn released(&mut self, here: Option<u32>) {
        self.holder = None;
        if self.parallel && self.computing {
            self.home = here;
        }
    }

    /// The holder runs on the core `here` now, wherever it took the lock.
    pub fn seen(&mut self, here: u32) {
        if self.parallel && self.holder.is_some() {
            self.holder = Some(here);
            if self.computing {
                self.home = self.holder;
            }
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

    /// What a grant says to the one that gave the lock up. `keep`: where the one that gets it is kept;
    /// `awake`: whether it was, if it waits at all.
    pub fn next(&self, keep: Keep, awake: Option<bool>) -> Next {
        match awake {
            Some(_) if keep != Keep::Anywhere && keep == self.keep_of_last() => Next::SharesTheCore,
            Some(true) if self.parallel => Next::IsAwake,
            _ => Next::Sleeps,
        }
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
    ///
    /// `now` is asked for only where it matters.
    pub fn place_here(
        &self,
        here: Option<u32>,
        now: impl FnOnce() -> Nanos,
        place: Place,
    ) -> (Place, bool) {
        if !self.parallel {
            return (place, false);
        }
        match place.keep {
            Keep::Off(home) if here == Some(home) => {
                if now() >= self.moves_from {
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(1_000_000);

    #[test]
    fn who_does_not_compute_leaves_the_home_core_unless_the_others_are_busy() {
        let mut home = HomeCore::new(true);
        home.acquired(Some(1), true);
        let place = home.place(false, true);
        assert_eq!(place, Place { keep: Keep::Off(1), linger: Linger::Spin });
        assert_eq!(home.place_here(Some(1), || NOW, place), (place, true));
        home.moved(Nanos(0), Nanos(990_000));
        let stays = Place { keep: Keep::Anywhere, linger: Linger::Never };
        assert_eq!(home.place_here(Some(1), || NOW, place), (stays, false));
        home.moved(Nanos(990_000), Nanos(995_000));
        assert_eq!(home.place_here(Some(1), || NOW, place), (place, true));
    }

    #[test]
    fn nobody_stays_awake_where_the_holder_runs() {
        let mut home = HomeCore::new(true);
        home.acquired(Some(1), false);
        let place = home.place(false, true);
        assert_eq!(home.place_here(Some(0), || NOW, place).0.linger, Linger::Spin);
        assert_eq!(home.place_here(Some(1), || NOW, place).0.linger, Linger::Never);
        home.released(Some(1));
        assert_eq!(home.place_here(Some(1), || NOW, place).0.linger, Linger::Spin);
    }

    #[test]
    fn on_one_core_everybody_sleeps() {
        let mut home = HomeCore::new(false);
        home.acquired(Some(0), true);
        for computes in [false, true] {
            let place = Place { keep: Keep::Anywhere, linger: Linger::Never };
            assert_eq!(home.place(computes, true), place);
        }
    }
}
