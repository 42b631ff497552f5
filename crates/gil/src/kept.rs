//! Where a thread is kept while it waits, and how it comes back.

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cores::tests::{Fake, cores};
    use std::cell::RefCell;

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
}
