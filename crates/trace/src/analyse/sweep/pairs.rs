//! Who waited behind whom. Two passes: the first sums up every pair, the second keeps each single
//! length of those that matter, which would be too much for all of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::analyse::MOST_PAIRS;
use crate::read::Trace;

use super::walk::{Behind, Hold, Limits, Visitor, Wait, walk};

#[derive(Clone, Debug)]
pub struct Pair {
    pub waiter: u16,
    pub blocker: u16,
    pub waits: u64,
    pub total_ns: u64,
    /// Sorted.
    pub lengths: Vec<u64>,
}

/// A multiplication mixes a thread's number well enough, and takes a tenth of the time of the
/// usual hash, which guards against enemies.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u16(u16::from(byte));
        }
    }

    fn write_u16(&mut self, number: u16) {
        // The golden ratio, as Knuth has it; the high half is the good one.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// By waiter, then by blocker: a wait touches one small table, which stays in the cache.
type ByWaiter<T> = Vec<HashMap<u16, T, BuildHasherDefault<Mix>>>;

fn by_waiter<T>(threads: usize) -> ByWaiter<T> {
    (0..threads).map(|_| HashMap::default()).collect()
}

#[derive(Clone, Copy, Default)]
struct Sum {
    waits: u64,
    total_ns: u64,
}

/// The result of the first pass.
pub struct PairSums(ByWaiter<Sum>);

impl PairSums {
    pub fn new(threads: usize) -> PairSums {
        PairSums(by_waiter(threads))
    }

    pub fn add(&mut self, waiter: u16, part: &Behind) {
        if let Some(blockers) = self.0.get_mut(usize::from(waiter)) {
            let sum = blockers.entry(part.thread).or_default();
            sum.waits += 1;
            sum.total_ns = sum.total_ns.saturating_add(part.total_ns);
        }
    }

    /// The pairs of most time together, most first: with the second pass.
    pub fn longest(self, trace: &Trace, limits: Limits<'_>) -> Vec<Pair> {
        let mut places = by_waiter(self.0.len());
        let mut pairs = Vec::new();
        for (waiter, blockers) in (0..=u16::MAX).zip(self.0) {
            pairs.extend(blockers.into_iter().map(|(blocker, Sum { waits, total_ns })| Pair {
                waiter,
                blocker,
                waits,
                total_ns,
                lengths: Vec::new(),
            }));
        }
        pairs.sort_unstable_by_key(|pair| (u64::MAX - pair.total_ns, pair.waiter, pair.blocker));
        pairs.truncate(MOST_PAIRS);
        for (place, pair) in pairs.iter().enumerate() {
            if let Some(blockers) = places.get_mut(usize::from(pair.waiter)) {
                blockers.insert(pair.blocker, place);
            }
        }
        let mut second = SecondPass { pairs, places };
        walk(trace, limits, &mut second);
        for pair in &mut second.pairs {
            pair.lengths.sort_unstable();
        }
        second.pairs
    }
}

struct SecondPass {
    pairs: Vec<Pair>,
    places: ByWaiter<usize>,
}

impl Visitor for SecondPass {
    fn wants(&self, waiter: u16) -> bool {
        self.places.get(usize::from(waiter)).is_some_and(|blockers| !blockers.is_empty())
    }

    fn wait(&mut self, wait: &Wait, behind: &[Behind]) {
        let Some(blockers) = self.places.get(usize::from(wait.thread)) else { return };
        for part in behind {
            let place = blockers.get(&part.thread);
            if let Some(pair) = place.and_then(|&place| self.pairs.get_mut(place)) {
                pair.lengths.push(part.total_ns);
            }
        }
    }

    fn hold(&mut self, _: &Hold, _: &mut dyn Iterator<Item = (u16, u64)>) {}
    fn failed_wakeup(&mut self, _: u16) {}
    fn switch_on_request(&mut self, _: u16, _: u16) {}
}
