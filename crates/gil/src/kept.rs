//! Where a thread is kept while it waits, and how it comes back.

use deconvoy_policy::Nanos;
use deconvoy_policy::home::Keep;

use crate::primitive::{AtomicU32, AtomicU64, Ordering, const_but_for_loom};
use crate::{Cores, System};

/// What `keep` leaves of `allowed`; `None`: nothing.
fn left_of(keep: Keep, allowed: &Cores) -> Option<Cores> {
    let mut left = *allowed;
    let (Keep::On(core) | Keep::Off(core)) = keep else { return Some(left) };
    let (at, bit) = (core as usize / 64, 1 << (core % 64));
    match keep {
        Keep::Off(_) => *left.get_mut(at)? &= !bit,
        _ => {
            left = [0; 16];
            *left.get_mut(at)? = allowed.get(at)? & bit;
        }
    }
    left.iter().any(|&word| word != 0).then_some(left)
}

/// Where a thread is kept, and the cores that it was allowed on before. Written by the thread itself
/// as it moves, by whoever wakes it where it is to run, and by whoever sets its cores, one of them at
/// a time; and by `forget`, when it is another thread's from now on.
#[derive(Debug)]
pub struct Kept {
    /// A packed [`Keep`].
    keep: AtomicU32,
    before: Words,
    /// What was asked for. Another mask than this is somebody else's, and stays.
    asked: Words,
    /// 1: the thread moves, or somebody sets its cores.
    busy: AtomicU32,
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
                busy: AtomicU32::new(0),
            }
        }
    }

    /// Keeps the thread that `system` is of where `keep` says, of the cores that it is allowed on;
    /// whether it is kept so now. A mask that somebody else has set meanwhile counts as allowed from then on.
    ///
    /// Where somebody sets one right now it stays where it is; to run where it may, which it does
    /// with the lock, it waits a moment, and then goes on beside.
    pub fn settle(&self, system: &impl System, keep: Keep) -> bool {
        const MOMENT: Nanos = Nanos::from_millis(1);
        if self.keep.load(Ordering::Relaxed) == keep.pack() {
            return true;
        }
        let is_alone = match keep {
            Keep::Anywhere => self.enter_within(system, MOMENT),
            Keep::On(_) | Keep::Off(_) => self.enter(),
        };
        if !is_alone && keep != Keep::Anywhere {
            return false;
        }
        let settled = self.move_to(system, keep);
        if is_alone {
            self.leave();
        }
        settled
    }

    fn enter(&self) -> bool {
        // Acquire pairs with the Release in `leave`: what the other one did is seen.
        self.busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn enter_within(&self, system: &impl System, longest: Nanos) -> bool {
        const LOOK: Nanos = Nanos::from_micros(50);
        if self.enter() {
            return true;
        }
        let end = system.now().after(longest);
        while system.now() < end {
            system.futex_wait(&self.busy, 1, Some(system.now().after(LOOK)));
            if self.enter() {
                return true;
            }
        }
        false
    }

    fn leave(&self) {
        self.busy.store(0, Ordering::Release);
    }

    fn move_to(&self, system: &impl System, keep: Keep) -> bool {
        let old = self.keep.load(Ordering::Relaxed);
        let Some(present) = system.allowed() else { return false };
        let is_ours = old != Keep::Anywhere.pack() && present == self.asked.load();
        let allowed = if is_ours { self.before.load() } else { present };
        let Some(cores) = left_of(keep, &allowed) else { return false };
        if cores != present && !system.allow(&cores) {
            return false;
        }
        self.before.store(&allowed);
        self.asked.store(&cores);
        self.keep.store(keep.pack(), Ordering::Relaxed);
        true
    }

    /// Another thread, or this one, sets on which cores this one may run: `set` does so and reads
    /// back what became of it. Waits until it has moved, which to a busy core takes until it runs
    /// there; goes on beside one that does not come to an end with it, stopped by a debugger say.
    pub fn allow(&self, system: &impl System, set: impl FnOnce() -> Option<Cores>) {
        const LONGEST: Nanos = Nanos::from_millis(200);
        let is_alone = self.enter_within(system, LONGEST);
        let cores = set();
        if self.keep.load(Ordering::Relaxed) != Keep::Anywhere.pack()
            && let Some(cores) = cores
        {
            self.before.store(&cores);
        }
        if is_alone {
            self.leave();
        }
    }

    /// The thread is gone, and so is what was asked for it. Whoever sets its cores at the moment
    /// finds that out.
    pub fn forget(&self) {
        self.keep.store(Keep::Anywhere.pack(), Ordering::Relaxed);
    }

    /// In a forked child, where nobody is under way but the calling thread.
    pub fn forked(&self) {
        self.forget();
        self.leave();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fake::{Fake, cores};
    use std::cell::RefCell;
    use std::sync::{Barrier, Mutex};

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
    fn what_another_thread_sets_is_never_lost() {
        struct Shared(Mutex<Cores>);
        impl System for Shared {
            fn now(&self) -> Nanos {
                Nanos::ZERO
            }
            fn futex_wait(&self, _: &AtomicU32, _: u32, _: Option<Nanos>) {
                std::thread::yield_now();
            }
            fn futex_wake(&self, _: &AtomicU32, _: u32) {}
            fn allowed(&self) -> Option<Cores> {
                Some(*self.0.lock().unwrap())
            }
            fn allow(&self, cores: &Cores) -> bool {
                *self.0.lock().unwrap() = *cores;
                true
            }
        }
        // Like where it is kept, and unlike.
        for set in [cores(&[0]), cores(&[2])] {
            for _ in 0..300 {
                let system = Shared(Mutex::new(cores(&[0, 1, 2])));
                let (kept, start) = (Kept::new(), Barrier::new(2));
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        start.wait();
                        for _ in 0..20 {
                            kept.settle(&system, Keep::On(0));
                            kept.settle(&system, Keep::Anywhere);
                        }
                    });
                    start.wait();
                    kept.allow(&system, || {
                        system.allow(&set);
                        system.allowed()
                    });
                });
                assert_eq!(*system.0.lock().unwrap(), set);
            }
        }
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
