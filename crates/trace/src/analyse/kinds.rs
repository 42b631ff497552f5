//! Threads of one kind. A thread for each request is one thing to a reader, and its few waits are
//! evidence only together with those of its like.

use std::collections::BTreeMap;

use crate::format::{OTHERS, state};
use crate::histogram::BUCKETS;
use crate::read::{ThreadSums, Trace};

/// Up to so many like-named threads, each is a row of its own.
const FEW: usize = 8;

/// Threads whose names differ in digits only and that are alike in whether they compute, if there
/// are many; any other thread is a kind by itself.
pub struct Kind {
    /// What its threads add up to, under the index of the first; from the start of the first to the
    /// end of the last.
    pub sums: ThreadSums,
    /// Of its threads together, and the part of that which the events cover.
    pub life_ns: u64,
    pub covered_ns: u64,
    pub count: usize,
    /// Of the names of many: with a `*` for each number.
    pattern: String,
}

impl Kind {
    /// `25 threads "Thread-*"`; `None`: it is one thread.
    pub fn label(&self) -> Option<String> {
        let (count, pattern) = (self.count, self.pattern.as_str());
        (count > 1).then(|| match pattern {
            "" => format!("{count} threads without a name"),
            _ => format!("{count} threads {pattern:?}"),
        })
    }
}

#[derive(Default)]
pub struct Kinds {
    /// By thread: the one that stands for its kind.
    of: Vec<u16>,
    /// In order of the threads that stand for them.
    all: Vec<Kind>,
}

impl Kinds {
    pub fn of(trace: &Trace, computes: impl Fn(u16) -> bool) -> Kinds {
        let from_ns = trace.covered_from_ns();
        let mut alike: BTreeMap<(String, bool), Vec<&ThreadSums>> = BTreeMap::new();
        let mut kinds = Kinds { of: (0..=u16::MAX).collect(), all: Vec::new() };
        for thread in &trace.threads {
            if thread.index == OTHERS {
                kinds.all.push(add_up(String::new(), &[thread], from_ns));
            } else {
                let key = (pattern(&thread.name), computes(thread.index));
                alike.entry(key).or_default().push(thread);
            }
        }
        for ((pattern, _), threads) in alike {
            if threads.len() <= FEW {
                let single = |thread| add_up(String::new(), &[thread], from_ns);
                kinds.all.extend(threads.into_iter().map(single));
                continue;
            }
            let names: Vec<&str> = threads.iter().map(|it| it.name.as_str()).collect();
            let together = add_up(common(&pattern, &names), &threads, from_ns);
            for thread in threads {
                if let Some(place) = kinds.of.get_mut(usize::from(thread.index)) {
                    *place = together.sums.index;
                }
            }
            kinds.all.push(together);
        }
        kinds.all.sort_by_key(|kind| kind.sums.index);
        kinds
    }

    /// The one that stands for the kind of `thread`.
    pub fn kind(&self, thread: u16) -> u16 {
        self.of.get(usize::from(thread)).copied().unwrap_or(thread)
    }

    pub fn all(&self) -> &[Kind] {
        &self.all
    }

    /// The kind that `index` stands for; none for a thread without a record.
    pub fn get(&self, index: u16) -> Option<&Kind> {
        let place = self.all.binary_search_by_key(&index, |kind| kind.sums.index).ok()?;
        self.all.get(place)
    }

    /// How many threads `index` stands for.
    pub fn count(&self, index: u16) -> usize {
        self.get(index).map_or(1, |kind| kind.count)
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

/// The pattern with those numbers in it that are the same in all the names.
fn common(pattern: &str, names: &[&str]) -> String {
    let numbers = |name: &str| -> Vec<String> {
        let parts = name.split(|c: char| !c.is_ascii_digit());
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let all: Vec<Vec<String>> = names.iter().map(|name| numbers(name)).collect();
    let mut found = String::new();
    let mut place = 0;
    for c in pattern.chars() {
        let mut these = all.iter().filter_map(|numbers| numbers.get(place));
        match these.next().filter(|_| c == '*') {
            Some(first) if these.all(|other| other == first) => found.push_str(first),
            _ => found.push(c),
        }
        place += usize::from(c == '*');
    }
    found
}

/// Several threads as one kind.
fn add_up(pattern: String, threads: &[&ThreadSums], from_ns: u64) -> Kind {
    let sum = |number: &dyn Fn(&ThreadSums) -> u64| {
        threads.iter().map(|thread| number(thread)).fold(0, u64::saturating_add)
    };
    let most = |number: fn(&ThreadSums) -> u64| threads.iter().map(|it| number(it)).max();
    let alive = threads.iter().find(|thread| thread.state != state::ENDED);
    let first = threads.iter().min_by_key(|thread| thread.index);
    let (name, native_id) = match threads {
        [one] => (one.name.clone(), one.native_id),
        _ => (String::new(), 0),
    };
    let mut sums = ThreadSums {
        index: first.map_or(OTHERS, |thread| thread.index),
        native_id,
        name,
        state: alive.map_or(state::ENDED, |thread| thread.state),
        start_ns: threads.iter().map(|it| it.start_ns).min().unwrap_or(0),
        end_ns: most(|it| it.end_ns).unwrap_or(0),
        holding_ns: sum(&|it| it.holding_ns),
        waiting_ns: sum(&|it| it.waiting_ns),
        elsewhere_ns: sum(&|it| it.elsewhere_ns),
        acquires: sum(&|it| it.acquires),
        waits: sum(&|it| it.waits),
        switches: sum(&|it| it.switches),
        forced: sum(&|it| it.forced),
        asks: sum(&|it| it.asks),
        longest_wait_ns: most(|it| it.longest_wait_ns).unwrap_or(0),
        longest_hold_ns: most(|it| it.longest_hold_ns).unwrap_or(0),
        longest_answer_ns: most(|it| it.longest_answer_ns).unwrap_or(0),
        wait_counts: [0; BUCKETS],
        hold_counts: [0; BUCKETS],
    };
    for thread in threads {
        let waits = sums.wait_counts.iter_mut().zip(&thread.wait_counts);
        let holds = sums.hold_counts.iter_mut().zip(&thread.hold_counts);
        for (count, &more) in waits.chain(holds) {
            *count = count.saturating_add(more);
        }
    }
    let life_ns = sum(&ThreadSums::life_ns);
    let covered_ns = sum(&|it| it.end_ns.saturating_sub(it.start_ns.max(from_ns)));
    Kind { sums, life_ns, covered_ns, count: threads.len(), pattern }
}
