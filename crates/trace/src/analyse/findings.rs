//! What is wrong, in plain words, each with its evidence and the mend.
//!
//! Each finding is one rule over the evidence that the sweep gathered. What counts as long, brief
//! or slow is defined there; when it is often enough to tell somebody, in the file of each rule.

mod battle;
mod convoy;
mod hog;
mod starvation;

use std::collections::HashMap;

use serde::Serialize;

use crate::format::{Kind, MAX_LOCKS};
use crate::read::Trace;

use super::kinds;
use super::sweep::Sweep;
use super::words::{self, count, length, list};
use super::{Labels, ThreadLabel};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingKind {
    /// Threads that need the lock for a moment queue behind one that keeps it.
    Convoy,
    /// Threads take the lock from each other so often that it costs more than it gives.
    Battle,
    /// A holder does not heed requests: C code that keeps the lock.
    Hog,
    /// A thread does not get its turn.
    Starvation,
    /// None of these.
    Nothing,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// In plain words, one line.
    pub text: String,
    /// What to do about it, one line; empty for `Nothing`.
    pub mend: String,
    /// The time that threads lost by it, summed over them; findings are in this order.
    pub lost_ns: u64,
    /// Worst first.
    pub victims: Vec<ThreadLabel>,
    pub blockers: Vec<ThreadLabel>,
    /// Of what the text counts, in the part of the run that the events cover.
    pub times: u64,
    pub median_ns: u64,
    pub longest_ns: u64,
    pub per_s: f64,
}

/// In percent: threads that wait for less of their time are well served.
const BUSY_SHARE: f64 = 10.0;

struct Context<'c> {
    trace: &'c Trace,
    interval_ns: u64,
    labels: &'c Labels<'c>,
    sweep: &'c Sweep,
}

/// The findings, worst first; one of kind `Nothing` if there is none.
pub(super) fn all(
    trace: &Trace,
    interval_ns: u64,
    labels: &Labels<'_>,
    sweep: &Sweep,
) -> Vec<Finding> {
    let context = Context { trace, interval_ns, labels, sweep };
    let rules = [context.convoy(), context.battle(), context.hog(), context.starvation()];
    let mut findings: Vec<Finding> = rules.into_iter().flatten().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.lost_ns));
    if findings.is_empty() {
        findings.push(context.nothing());
    }
    findings
}

/// The keys of the largest values, largest first.
fn most(of: &HashMap<u16, u64>) -> Vec<u16> {
    let mut list: Vec<(u64, u16)> = of.iter().map(|(&thread, &ns)| (ns, thread)).collect();
    list.sort_unstable_by_key(|&(ns, thread)| (u64::MAX - ns, thread));
    list.into_iter().map(|(_, thread)| thread).collect()
}

/// Those that stand for at least a tenth of the whole: whom to name.
fn chief(of: &HashMap<u16, u64>) -> Vec<u16> {
    let whole = of.values().fold(0u64, |sum, &ns| sum.saturating_add(ns));
    let counts = |thread: &u16| of.get(thread).is_some_and(|&ns| ns.saturating_mul(10) >= whole);
    most(of).into_iter().filter(counts).collect()
}

fn names(threads: &[ThreadLabel]) -> String {
    list(&threads.iter().map(|thread| thread.label.clone()).collect::<Vec<_>>())
}

impl Context<'_> {
    fn labels(&self, threads: impl IntoIterator<Item = u16>) -> Vec<ThreadLabel> {
        threads.into_iter().map(|thread| self.labels.of(thread)).collect()
    }

    fn covered_ns(&self) -> u64 {
        self.trace.end_ns.saturating_sub(self.trace.covered_from_ns())
    }

    fn per_s(&self, count: u64) -> f64 {
        match self.covered_ns() {
            0 => 0.0,
            ns => count as f64 * 1e9 / ns as f64,
        }
    }

    /// " in the last 3.2 s", when that is all that is known.
    fn meanwhile(&self) -> String {
        match self.trace.overwritten {
            0 => String::new(),
            _ => format!(" in the last {}", length(self.covered_ns())),
        }
    }

    fn run(&self) -> String {
        let about = &self.trace.about;
        let command = words::command(&about.command);
        match about.policy.split(':').next() {
            // The lab or the simulator: there is no program to run otherwise.
            Some(name) if about.counts_instructions && name != "adaptive" => {
                format!("compare it with the runtime {}:adaptive of deconvoy bench", about.runtime)
            }
            _ if about.stock => format!("deconvoy run -- {command}"),
            Some("adaptive") | None => "this ran under deconvoy's own policy already: please \
                 report it, with this trace"
                .to_owned(),
            Some(_) => format!("deconvoy run --policy adaptive -- {command}"),
        }
    }

    /// "about one switch interval (5.1 ms)", "about 4 ms" where intervals say little.
    fn about(&self, ns: u64) -> String {
        const TOO_MANY: u64 = 20;
        let intervals = match (ns as f64 / self.interval_ns as f64).round() as u64 {
            0 => "half a switch interval".to_owned(),
            1 => "one switch interval".to_owned(),
            few @ 2..=TOO_MANY => format!("{few} switch intervals"),
            _ => return format!("about {}", length(ns)),
        };
        format!("about {intervals} ({})", length(ns))
    }

    fn kind(&self, thread: &ThreadLabel) -> Option<&kinds::Kind> {
        self.sweep.kinds.get(thread.index)
    }

    /// How many threads these are.
    fn count(&self, kinds: &[ThreadLabel]) -> u64 {
        kinds.iter().map(|label| self.sweep.kinds.count(label.index) as u64).sum()
    }

    fn held_ns(&self, thread: &ThreadLabel) -> u64 {
        self.kind(thread).map_or(0, |kind| kind.sums.holding_ns)
    }

    /// "20.1 s of its 21.3 s".
    fn held_of_life(&self, thread: &ThreadLabel) -> String {
        self.kind(thread).map_or_else(String::new, |kind| {
            format!("{} of its {}", length(kind.sums.holding_ns), length(kind.life_ns))
        })
    }

    fn computing(&self) -> Vec<u16> {
        let mut threads: Vec<_> = self.sweep.kinds.all().iter().map(|kind| &kind.sums).collect();
        threads.retain(|sums| self.sweep.computes(sums.index));
        threads.sort_by_key(|sums| std::cmp::Reverse(sums.holding_ns));
        threads.iter().map(|sums| sums.index).collect()
    }

    /// How many locks were in use: sub-interpreters may have their own.
    fn locks(&self) -> u64 {
        let mut used = [false; MAX_LOCKS];
        for event in self.trace.events.iter().filter(|event| event.kind == Kind::Acquire) {
            used[usize::from(event.lock)] = true;
        }
        used.into_iter().filter(|&used| used).count().max(1) as u64
    }

    fn nothing(&self) -> Finding {
        let sum = |number: fn(&crate::read::ThreadSums) -> u64| {
            self.trace.threads.iter().map(number).fold(0, u64::saturating_add)
        };
        let share = |ns: u64, of_ns: u64| ns as f64 * 100.0 / of_ns.max(1) as f64;
        let longest_ns = self.trace.threads.iter().map(|sums| sums.longest_wait_ns).max();
        let longest_ns = longest_ns.unwrap_or(0);
        let computing = self.labels(self.computing());
        let lock_time_ns = self.trace.end_ns.saturating_mul(self.locks());
        let held_share = share(sum(|sums| sums.holding_ns), lock_time_ns).min(100.0);
        let waiting_share = share(sum(|sums| sums.waiting_ns), sum(|sums| sums.life_ns()));
        let many = self.count(&computing);
        let text = match many {
            2.. if self.locks() == 1 => format!(
                "{} threads compute and share the lock, each in its turn: {}. It was held \
                 {held_share:.0} % of the time. Threads cannot make them faster on this build.",
                count(many),
                names(&computing),
            ),
            _ if waiting_share >= BUSY_SHARE => format!(
                "No thread keeps a lock from others, but {} busy: held {held_share:.0} % of the \
                 time, and {waiting_share:.0} % of the threads' time went into waiting.",
                if self.locks() == 1 { "it is" } else { "they are" },
            ),
            _ if self.trace.about.runtime.contains("free-threading") && longest_ns == 0 => {
                "Its threads run without a GIL, as this build of CPython has it: nobody waited."
                    .to_owned()
            }
            _ if longest_ns == 0 => "Nothing wrong: nobody waited.".to_owned(),
            _ => format!(
                "Nothing wrong: the longest wait was {}, and {waiting_share:.1} % of the threads' \
                 time went into waiting.",
                length(longest_ns),
            ),
        };
        Finding {
            kind: FindingKind::Nothing,
            text,
            mend: String::new(),
            lost_ns: 0,
            victims: Vec::new(),
            blockers: computing,
            times: 0,
            median_ns: 0,
            longest_ns,
            per_s: 0.0,
        }
    }
}
