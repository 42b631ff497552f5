//! Threads of one kind. A thread for each request is one thing to a reader, and its few waits are
//! evidence only together with those of its like.

use std::collections::BTreeMap;

use crate::format::{OTHERS, state};
use crate::histogram::BUCKETS;
use crate::read::{ThreadSums, Trace};

/// Up to so many like-named threads, each is a row of its own.
const FEW: usize = 8;

/// Which threads count as one: those whose names differ in digits only, if there are many.
pub struct Kinds {
    /// By thread: the one that stands for its kind.
    of: Vec<u16>,
    /// The patterns of the kinds of many, and how many there are, by the one that stands for them.
    many: BTreeMap<u16, (String, usize)>,
    /// What each kind adds up to, under the one that stands for it; in order of index.
    sums: Vec<ThreadSums>,
}

impl Kinds {
    pub fn of(trace: &Trace) -> Kinds {
        let mut alike: BTreeMap<String, Vec<&ThreadSums>> = BTreeMap::new();
        for thread in trace.threads.iter().filter(|thread| thread.index != OTHERS) {
            alike.entry(pattern(&thread.name)).or_default().push(thread);
        }
        let mut kinds = Kinds {
            of: (0..=u16::MAX).collect(),
            many: BTreeMap::new(),
            sums: trace.threads.iter().filter(|it| it.index == OTHERS).cloned().collect(),
        };
        for (pattern, threads) in alike {
            if threads.len() <= FEW {
                kinds.sums.extend(threads.into_iter().cloned());
                continue;
            }
            let together = add_up(&threads);
            for thread in &threads {
                if let Some(place) = kinds.of.get_mut(usize::from(thread.index)) {
                    *place = together.index;
                }
            }
            kinds.many.insert(together.index, (pattern, threads.len()));
            kinds.sums.push(together);
        }
        kinds.sums.sort_by_key(|sums| sums.index);
        kinds
    }

    /// The one that stands for the kind of `thread`.
    pub fn kind(&self, thread: u16) -> u16 {
        self.of.get(usize::from(thread)).copied().unwrap_or(thread)
    }

    pub fn all(&self) -> &[ThreadSums] {
        &self.sums
    }

    pub fn sums(&self, kind: u16) -> Option<&ThreadSums> {
        let place = self.sums.binary_search_by_key(&kind, |sums| sums.index).ok()?;
        self.sums.get(place)
    }

    /// How many threads `kind` stands for.
    pub fn count(&self, kind: u16) -> usize {
        self.many.get(&kind).map_or(1, |&(_, count)| count)
    }

    /// `25 threads "Thread-*"`; `None`: it stands for itself.
    pub fn label(&self, kind: u16) -> Option<String> {
        self.many.get(&kind).map(|(pattern, count)| match pattern.as_str() {
            "" => format!("{count} threads without a name"),
            pattern => format!("{count} threads {pattern:?}"),
        })
    }
}

/// The name with a `*` for each number in it.
fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    for c in name.chars() {
        match c {
            '0'..='9' if pattern.ends_with('*') => {}
            '0'..='9' => pattern.push('*'),
            other => pattern.push(other),
        }
    }
    pattern
}

/// Several threads as if they were one, whose life is as long as theirs together.
fn add_up(threads: &[&ThreadSums]) -> ThreadSums {
    let sum = |number: fn(&ThreadSums) -> u64| {
        threads.iter().map(|thread| number(thread)).fold(0, u64::saturating_add)
    };
    let most = |number: fn(&ThreadSums) -> u64| threads.iter().map(|it| number(it)).max();
    let alive = threads.iter().find(|thread| thread.state != state::ENDED);
    let mut together = ThreadSums {
        index: threads.iter().map(|it| it.index).min().unwrap_or(OTHERS),
        native_id: 0,
        name: String::new(),
        start_ns: 0,
        end_ns: sum(ThreadSums::life_ns),
        holding_ns: sum(|it| it.holding_ns),
        waiting_ns: sum(|it| it.waiting_ns),
        elsewhere_ns: sum(|it| it.elsewhere_ns),
        acquires: sum(|it| it.acquires),
        waits: sum(|it| it.waits),
        switches: sum(|it| it.switches),
        forced: sum(|it| it.forced),
        asks: sum(|it| it.asks),
        longest_wait_ns: most(|it| it.longest_wait_ns).unwrap_or(0),
        longest_hold_ns: most(|it| it.longest_hold_ns).unwrap_or(0),
        longest_answer_ns: most(|it| it.longest_answer_ns).unwrap_or(0),
        state: alive.map_or(state::ENDED, |thread| thread.state),
        wait_counts: [0; BUCKETS],
        hold_counts: [0; BUCKETS],
    };
    for thread in threads {
        let waits = together.wait_counts.iter_mut().zip(&thread.wait_counts);
        let holds = together.hold_counts.iter_mut().zip(&thread.hold_counts);
        for (count, &more) in waits.chain(holds) {
            *count = count.saturating_add(more);
        }
    }
    together
}
