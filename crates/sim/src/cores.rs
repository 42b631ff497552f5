//! The cores and their run queues: an operating system's scheduler of the kind of Linux's CFS (2007)
//! and EEVDF (2023), as far as it matters to a lock.
//!
//! - Each core has a queue, ordered by what a thread has run so far.
//! - A thread that wakes up goes back to its core, to an idle one, or to that of its waker.
//! - It preempts who runs there if it has run less, at once or at the next tick after a slice.
//! - A core that falls idle takes a thread from the longest queue; one that stays idle is given one
//!   at a tick of a core with a queue.

use deconvoy_policy::home::Keep;

/// The most cores that are simulated.
pub const MAX_CORES: u32 = 1_024;

#[derive(Debug)]
pub struct Core {
    pub current: Option<u32>,
    /// Runtime and number of those who are ready, the one that has run most in front.
    queue: Vec<(u64, u32)>,
    /// What runs here has run so much, at least: never goes back.
    pub floor: u64,
    /// Up to when the time of the current thread is accounted. Ahead of now while the core gets
    /// ready for it.
    pub since: u64,
    /// How long it has run since it was picked.
    pub ran: u64,
    /// Since when it has been idle, if it is.
    pub idle_since: u64,
    /// Changes of thread.
    pub switches: u64,
    /// Somebody has woken up here since the last look at who is to run.
    pub woke_up: bool,
    /// Until when it is busy with the last timer that went off here.
    pub interrupted_until: u64,
}

impl Core {
    pub fn new() -> Core {
        Core {
            current: None,
            queue: Vec::new(),
            floor: 0,
            since: 0,
            ran: 0,
            idle_since: 0,
            switches: 0,
            woke_up: false,
            interrupted_until: 0,
        }
    }

    pub fn push(&mut self, runtime: u64, thread: u32) {
        let place = self.queue.partition_point(|&queued| queued > (runtime, thread));
        self.queue.insert(place, (runtime, thread));
    }

    pub fn pop(&mut self) -> Option<u32> {
        let (runtime, thread) = self.queue.pop()?;
        self.floor = self.floor.max(runtime);
        Some(thread)
    }

    /// Whoever has run least of those who are ready.
    pub fn least(&self) -> Option<(u64, u32)> {
        self.queue.last().copied()
    }

    /// One that is ready here and may go to the core `to`.
    pub fn steal(&mut self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let place = self.queue.iter().position(|&(_, thread)| may_go(thread))?;
        Some(self.queue.remove(place).1)
    }

    pub fn load(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some())
    }

    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}

/// A set of cores.
#[derive(Debug)]
pub struct CoreSet([u64; MAX_CORES as usize / 64]);

impl CoreSet {
    pub fn first(count: u32) -> CoreSet {
        let mut set = CoreSet([0; 16]);
        (0..count).for_each(|core| set.insert(core));
        set
    }

    pub fn insert(&mut self, core: u32) {
        self.0[core as usize / 64] |= 1 << (core % 64);
    }

    pub fn remove(&mut self, core: u32) {
        self.0[core as usize / 64] &= !(1 << (core % 64));
    }

    pub fn contains(&self, core: u32) -> bool {
        self.0[core as usize / 64] & 1 << (core % 64) != 0
    }

    /// One of them that `keep` allows, looking from `from` on.
    pub fn find(&self, from: u32, keep: Keep) -> Option<u32> {
        if let Keep::On(core) = keep {
            return self.contains(core).then_some(core);
        }
        let barred = if let Keep::Off(core) = keep { core } else { u32::MAX };
        let words = self.0.len() as u32;
        (0..=words).find_map(|turn| {
            let index = (from / 64 + turn) % words;
            let mut word = self.0[index as usize];
            if turn == 0 {
                word &= u64::MAX << (from % 64);
            }
            if barred / 64 == index {
                word &= !(1 << (barred % 64));
            }
            (word != 0).then(|| index * 64 + word.trailing_zeros())
        })
    }
}

/// Whether `keep` allows a core.
pub fn allows(keep: Keep, core: u32) -> bool {
    match keep {
        Keep::Anywhere => true,
        Keep::On(only) => core == only,
        Keep::Off(barred) => core != barred,
    }
}

/// The first tick after `now`; the ticks of the cores do not come together.
pub fn next_tick(now: u64, core: u32, tick: u64) -> u64 {
    let offset = (u64::from(core) * 7_919_000) % tick;
    let since = (now % tick + tick - offset) % tick;
    now.saturating_add(tick - since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_run_least_goes_first() {
        let mut core = Core::new();
        for (runtime, thread) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            core.push(runtime, thread);
        }
        assert_eq!(core.steal(|thread| thread == 3), Some(3));
        let order: Vec<_> = std::iter::from_fn(|| core.pop()).collect();
        assert_eq!(order, [2, 4, 1]);
        assert_eq!(core.floor, 30);
    }

    #[test]
    fn a_core_is_found_where_one_is_allowed() {
        let mut idle = CoreSet::first(130);
        (0..130).filter(|core| ![3, 70, 129].contains(core)).for_each(|core| idle.remove(core));
        assert_eq!(idle.find(0, Keep::Anywhere), Some(3));
        assert_eq!(idle.find(4, Keep::Anywhere), Some(70));
        assert_eq!(idle.find(71, Keep::Off(129)), Some(3));
        assert_eq!(idle.find(0, Keep::On(70)), Some(70));
        assert_eq!(idle.find(0, Keep::On(71)), None);
    }

    #[test]
    fn ticks_are_a_period_apart() {
        for core in 0..8 {
            let mut at = 12_345;
            let mut last = next_tick(at, core, 1_000);
            for _ in 0..10 {
                at = last;
                let next = next_tick(at, core, 1_000);
                assert_eq!(next - last, 1_000, "core {core}");
                last = next;
            }
        }
    }
}
