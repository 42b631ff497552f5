//! How soon threads heed drop requests.

use crate::analyse::kinds::Kinds;
use crate::format::{Kind, MAX_LOCKS};
use crate::histogram::{BUCKETS, bucket, quantile_ns};
use crate::read::Trace;

/// Bytecode is left within microseconds, but for those times when the system keeps the holder off its
/// processor: on a busy machine that is most of them, and each takes a scheduler's slice, yet one in
/// ten is answered at once. C code answers when it is done, and so hardly ever at once. (Measured:
/// bytecode beside a build, 5 % in 4 us, half in 2.8 ms; a regular expression of 13 ms, 5 % in 1.8 ms,
/// half in 4.4 ms.)
const DEAF_NS: u64 = 1_000_000;
const AT_ONCE_NS: u64 = 100_000;
const AT_ONCE_SHARE: f64 = 0.05;
const DEAF_LEAST: u64 = 5;

/// The threads that usually do not hear that they are asked, and what is slow of anybody.
#[derive(Default)]
pub struct Deaf {
    /// By kind.
    deaf: Vec<bool>,
    /// Of those who are not.
    slow_ns: u64,
}

impl Deaf {
    /// `kinds`: whose answers count together. `slow_ns`: what is a slow answer of a thread that is
    /// not deaf.
    pub fn of(trace: &Trace, threads: usize, kinds: &Kinds, slow_ns: u64) -> Deaf {
        let mut counts = vec![[0u32; BUCKETS]; threads];
        // By lock: who holds it, and since when it is asked for.
        let mut held: Vec<Option<(u16, Option<u64>)>> = vec![None; MAX_LOCKS];
        for event in &trace.events {
            // There is one for each value of a byte.
            let lock = &mut held[usize::from(event.lock)];
            match event.kind {
                Kind::Acquire => *lock = Some((event.thread, None)),
                Kind::Ask => {
                    if let Some((_, asked_ns)) = lock {
                        *asked_ns = asked_ns.or(Some(event.at_ns));
                    }
                }
                Kind::Release => {
                    if let Some((holder, Some(asked_ns))) = lock.take()
                        && holder == event.thread
                        && let Some(counts) = counts.get_mut(usize::from(kinds.kind(holder)))
                        && let Some(count) =
                            counts.get_mut(bucket(event.at_ns.saturating_sub(asked_ns)))
                    {
                        *count = count.saturating_add(1);
                    }
                }
                _ => {}
            }
        }
        let is_deaf = |counts: &[u32; BUCKETS]| {
            counts.iter().map(|&count| u64::from(count)).sum::<u64>() >= DEAF_LEAST
                && quantile_ns(counts, 0.5).is_some_and(|median_ns| median_ns >= DEAF_NS)
                && quantile_ns(counts, AT_ONCE_SHARE).is_some_and(|ns| ns >= AT_ONCE_NS)
        };
        Deaf { deaf: counts.iter().map(is_deaf).collect(), slow_ns }
    }

    pub fn is(&self, kind: u16) -> bool {
        self.deaf.get(usize::from(kind)).is_some_and(|&deaf| deaf)
    }

    /// The least length of a slow answer of `kind`.
    pub fn slow_ns(&self, kind: u16) -> u64 {
        if self.is(kind) { self.slow_ns.min(DEAF_NS) } else { self.slow_ns }
    }
}
