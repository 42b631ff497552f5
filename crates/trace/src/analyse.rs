//! What a trace says: who had the lock, who waited, behind whom, and what is wrong with that.
//!
//! Sums and histograms come from the thread table and cover the whole run; whatever needs the
//! order of things (who waited behind whom, what is wrong) comes from the events, which cover the
//! end of the run when the ring went round. Times are in nanoseconds.

mod findings;
mod groups;
mod kinds;
mod labels;
mod sweep;
mod words;

use serde::Serialize;

use deconvoy_policy::Spec;

use crate::format::{self, Event, OTHERS, state};
use crate::histogram::quantile_ns;
use crate::read::{ThreadSums, Trace, is_ruby};
use kinds::Kind;
use labels::Labels;
use sweep::Sweep;

pub use findings::{Finding, FindingKind};
pub use groups::{Group, groups};
pub use words::{command as command_line, count as count_in_words, length as length_in_words};

/// Everything that `deconvoy report` prints.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    pub process: Process,
    /// From the start of the trace to the last thing in it.
    pub duration_ns: u64,
    pub totals: Totals,
    pub coverage: Coverage,
    /// Longest holding first.
    pub threads: Vec<ThreadReport>,
    /// The same, but many threads whose names differ in digits only are one.
    pub kinds: Vec<ThreadReport>,
    /// Longest together first; at most [`MOST_PAIRS`].
    pub pairs: Vec<PairReport>,
    /// Worst first; never empty.
    pub findings: Vec<Finding>,
}

/// Pairs beyond these are few waits each: nobody reads a table of a thousand lines.
pub const MOST_PAIRS: usize = 200;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Process {
    pub pid: u32,
    pub parent_pid: u32,
    pub cores: u32,
    /// `stock` when the lock followed the interpreter's own rule.
    pub policy: String,
    pub runtime: String,
    pub command: Vec<String>,
    /// What the rules of the policy are for that no thread of this process fits, as far as all
    /// its threads are known.
    pub unmatched: Vec<String>,
    pub start_unix_ns: u64,
    /// The switch interval; CPython's default when nobody waited and so none was seen.
    pub interval_ns: u64,
    /// When the process did what cannot be served (a Ruby that has a second Ractor), if it did: of
    /// what came then nothing is known.
    pub seen_until_ns: Option<u64>,
}

/// Over the whole run and all threads.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Totals {
    pub acquires: u64,
    /// Acquires that had to wait.
    pub waits: u64,
    /// Acquires of a lock that another thread had last.
    pub switches: u64,
    /// Releases on request, after which another thread had to take the lock.
    pub forced: u64,
    /// Drop requests.
    pub asks: u64,
    pub acquires_per_s: f64,
    pub switches_per_s: f64,
    pub forced_per_s: f64,
    pub asks_per_s: f64,
}

/// Which part of the run the events are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Coverage {
    /// No event is missing.
    pub whole: bool,
    pub from_ns: u64,
    pub to_ns: u64,
    pub events: u64,
    pub overwritten: u64,
    pub torn: u64,
    pub lost: u64,
    pub truncated: bool,
    /// Of all that the events show of waiting: behind a holder, while nobody held the lock (a
    /// wake-up takes its time), and too far back to say behind whom.
    pub behind_holders_ns: u64,
    pub lock_free_ns: u64,
    pub unattributed_ns: u64,
}

/// A thread, as a person refers to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ThreadLabel {
    pub index: u16,
    pub native_id: u32,
    /// Its name; with the native id when another thread has the same name or it has none.
    pub label: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Quantiles {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Computed from every single length; else from the histogram, within 19 %.
    pub exact: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThreadReport {
    #[serde(flatten)]
    pub thread: ThreadLabel,
    /// How many threads it is about.
    pub count: u64,
    pub name: String,
    /// `holding`, `waiting`, `elsewhere`, `ended`; `many` for the record that sums up those whose
    /// own was given away.
    pub state: &'static str,
    /// It asks for the lock again and again and gives it up when forced to.
    pub computes: bool,
    pub start_ns: u64,
    pub end_ns: u64,
    pub holding_ns: u64,
    pub waiting_ns: u64,
    pub elsewhere_ns: u64,
    /// Of its life, 0 to 1.
    pub holding_share: f64,
    pub waiting_share: f64,
    pub elsewhere_share: f64,
    pub acquires: u64,
    pub waits: u64,
    pub switches: u64,
    pub forced: u64,
    /// Releases on request, in the part of the run that the events cover. More than `forced`:
    /// CPython skips the forced wait when another thread is quick to take the lock.
    pub preempted: u64,
    pub asks: u64,
    pub longest_answer_ns: u64,
    /// Of the acquires that had to wait.
    pub wait: Quantiles,
    pub hold: Quantiles,
}

/// How `waiter` waited behind `blocker`: the parts of its waits during which that one held the
/// lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PairReport {
    pub waiter: ThreadLabel,
    pub blocker: ThreadLabel,
    pub waits: u64,
    pub total_ns: u64,
    pub median_ns: u64,
    pub p99_ns: u64,
    pub longest_ns: u64,
}

/// CPython's own, where the trace has none because nobody ever waited.
const DEFAULT_INTERVAL_NS: u64 = deconvoy_policy::timeout::DEFAULT_INTERVAL.0;

/// Says what is in a trace.
pub fn report(trace: &Trace) -> Report {
    let interval_ns = interval_ns(trace);
    let sweep = Sweep::over(trace, interval_ns);
    let kinds = &sweep.kinds;
    let labels = Labels::new(trace, kinds);
    let exact = trace.is_whole() && trace.retired == 0;
    let one = |sums: &ThreadSums| {
        let life = Life { ns: sums.life_ns(), count: 1 };
        // Of a kind of many, the lengths are known together.
        let exact = exact && kinds.count(kinds.kind(sums.index)) == 1;
        thread_report(sums, life, &sweep, labels.of_thread(sums.index), exact)
    };
    let together = |kind: &Kind| {
        let life = Life { ns: kind.life_ns, count: kind.count as u64 };
        thread_report(&kind.sums, life, &sweep, labels.of(kind.sums.index), exact)
    };
    let mut of_threads: Vec<_> = trace.threads.iter().map(one).collect();
    let mut of_kinds: Vec<_> = kinds.all().iter().map(together).collect();
    for rows in [&mut of_threads, &mut of_kinds] {
        rows.sort_by_key(|row| std::cmp::Reverse((row.holding_ns, row.waiting_ns)));
    }
    Report {
        process: process(trace, interval_ns),
        duration_ns: trace.end_ns,
        totals: totals(trace),
        coverage: coverage(trace, &sweep),
        pairs: pairs(&sweep, &labels),
        findings: findings::all(trace, interval_ns, &labels, &sweep),
        threads: of_threads,
        kinds: of_kinds,
    }
}

fn interval_ns(trace: &Trace) -> u64 {
    match trace.about.interval_ns {
        0 => DEFAULT_INTERVAL_NS,
        set => set,
    }
}

fn process(trace: &Trace, interval_ns: u64) -> Process {
    let about = &trace.about;
    Process {
        pid: about.pid,
        parent_pid: about.parent_pid,
        cores: about.cores,
        policy: if about.stock { "stock".into() } else { about.policy.clone() },
        runtime: about.runtime.clone(),
        command: about.command.clone(),
        unmatched: unmatched(trace),
        start_unix_ns: about.start_unix_ns,
        interval_ns,
        seen_until_ns: seen_until_ns(trace),
    }
}

/// Ruby's lock lasts as long as the process, so its end says that it is not seen any more.
fn seen_until_ns(trace: &Trace) -> Option<u64> {
    let ends = |event: &&Event| event.kind == format::Kind::LockEnd;
    let is_ruby = is_ruby(&trace.about.runtime);
    trace.events.iter().find(ends).filter(|_| is_ruby).map(|event| event.at_ns)
}

fn unmatched(trace: &Trace) -> Vec<String> {
    // The names of threads whose records were given away are not known any more.
    if trace.about.stock || trace.retired > 0 {
        return Vec::new();
    }
    let Ok(Spec::Priority(rules)) = Spec::parse(&trace.about.policy) else { return Vec::new() };
    let fits = |rule: &str, thread: &ThreadSums| {
        rules.fits(rule, thread.name.as_bytes(), thread.native_id)
    };
    let nobody = |rule: &&str| !trace.threads.iter().any(|thread| fits(rule, thread));
    rules.patterns().filter(nobody).map(str::to_owned).collect()
}

fn totals(trace: &Trace) -> Totals {
    let sum = |number: fn(&ThreadSums) -> u64| {
        trace.threads.iter().map(number).fold(0, u64::saturating_add)
    };
    let per_s = |count: u64| match trace.end_ns {
        0 => 0.0,
        ns => count as f64 * 1e9 / ns as f64,
    };
    let (acquires, switches) = (sum(|thread| thread.acquires), sum(|thread| thread.switches));
    let (forced, asks) = (sum(|thread| thread.forced), sum(|thread| thread.asks));
    Totals {
        acquires,
        waits: sum(|thread| thread.waits),
        switches,
        forced,
        asks,
        acquires_per_s: per_s(acquires),
        switches_per_s: per_s(switches),
        forced_per_s: per_s(forced),
        asks_per_s: per_s(asks),
    }
}

fn coverage(trace: &Trace, sweep: &Sweep) -> Coverage {
    Coverage {
        whole: trace.is_whole(),
        from_ns: trace.covered_from_ns(),
        to_ns: trace.end_ns,
        events: trace.events.len() as u64,
        overwritten: trace.overwritten,
        torn: trace.torn,
        lost: trace.lost,
        truncated: trace.truncated,
        behind_holders_ns: sweep.behind_holders_ns,
        lock_free_ns: sweep.lock_free_ns,
        unattributed_ns: sweep.unattributed_ns,
    }
}

fn state_name(sums: &ThreadSums) -> &'static str {
    match (sums.index, sums.state) {
        (OTHERS, _) => "many",
        (_, state::WAITING) => "waiting",
        (_, state::HOLDING) => "holding",
        (_, state::ENDED) => "ended",
        _ => "elsewhere",
    }
}

/// How long threads lived, together, and how many they are.
#[derive(Clone, Copy)]
struct Life {
    ns: u64,
    count: u64,
}

fn thread_report(
    sums: &ThreadSums,
    life: Life,
    sweep: &Sweep,
    thread: ThreadLabel,
    exact: bool,
) -> ThreadReport {
    let share = |ns: u64| match life.ns {
        0 => 0.0,
        life_ns => ns as f64 / life_ns as f64,
    };
    let place = usize::from(sums.index);
    let usages = if life.count == 1 { &sweep.usages } else { &sweep.together };
    let lengths = sweep.lengths.get(place).filter(|_| exact);
    let wait = lengths.map(|lengths| lengths.waits.as_slice());
    let hold = lengths.map(|lengths| lengths.holds.as_slice());
    ThreadReport {
        thread,
        count: life.count,
        name: sums.name.clone(),
        state: state_name(sums),
        computes: sweep.computes(sums.index),
        start_ns: sums.start_ns,
        end_ns: sums.end_ns,
        holding_ns: sums.holding_ns,
        waiting_ns: sums.waiting_ns,
        elsewhere_ns: sums.elsewhere_ns,
        holding_share: share(sums.holding_ns),
        waiting_share: share(sums.waiting_ns),
        elsewhere_share: share(sums.elsewhere_ns),
        acquires: sums.acquires,
        waits: sums.waits,
        switches: sums.switches,
        forced: sums.forced,
        preempted: usages.get(place).map_or(0, |usage| usage.on_request),
        asks: sums.asks,
        longest_answer_ns: sums.longest_answer_ns,
        wait: quantiles(wait, &sums.wait_counts, sums.longest_wait_ns),
        hold: quantiles(hold, &sums.hold_counts, sums.longest_hold_ns),
    }
}

/// `lengths`: all of them, sorted, if they are known.
fn quantiles(
    lengths: Option<&[u64]>,
    counts: &[u32; crate::histogram::BUCKETS],
    max_ns: u64,
) -> Quantiles {
    let from_counts = |q| quantile_ns(counts, q).unwrap_or(0).min(max_ns);
    match lengths {
        Some(lengths) => Quantiles {
            p50_ns: quantile_of(lengths, 0.5),
            p99_ns: quantile_of(lengths, 0.99),
            max_ns,
            exact: true,
        },
        None => {
            Quantiles { p50_ns: from_counts(0.5), p99_ns: from_counts(0.99), max_ns, exact: false }
        }
    }
}

/// The `q`-quantile of sorted lengths; 0 of none.
fn quantile_of(sorted: &[u64], q: f64) -> u64 {
    let rank = (sorted.len() as f64 * q) as usize;
    sorted.get(rank.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

fn pairs(sweep: &Sweep, labels: &Labels<'_>) -> Vec<PairReport> {
    sweep
        .pairs
        .iter()
        .map(|pair| PairReport {
            waiter: labels.of(pair.waiter),
            blocker: labels.of(pair.blocker),
            waits: pair.waits,
            total_ns: pair.total_ns,
            median_ns: quantile_of(&pair.lengths, 0.5),
            p99_ns: quantile_of(&pair.lengths, 0.99),
            longest_ns: pair.lengths.last().copied().unwrap_or(0),
        })
        .collect()
}
