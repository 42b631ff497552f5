//! What came of a run.

use deconvoy_policy::Observer;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::engine::{BEGUN, Hold, Placed, Sim};

/// Lengths of time, each within a hundredth of what it was, in room that does not grow.
#[derive(Debug)]
pub struct Lengths(Histogram<u64>);

impl Lengths {
    fn new() -> Lengths {
        const LONGEST_NS: u64 = 10_000_000_000_000;
        Lengths(Histogram::new_with_max(LONGEST_NS, 2).expect("the bounds are fixed"))
    }

    pub fn note(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    fn summary(&self) -> Summary {
        let at = |quantile| if self.0.is_empty() { 0 } else { self.0.value_at_quantile(quantile) };
        Summary {
            count: self.0.len(),
            mean_ns: self.0.mean(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            max_ns: self.0.max(),
        }
    }
}

/// Quantiles of lengths of time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// What is counted of a group while it runs.
#[derive(Debug)]
pub struct Group {
    pub name: String,
    pub gil: bool,
    pub ended_at: u64,
    pub waits: Lengths,
    pub answers: Lengths,
}

impl Group {
    pub(crate) fn new(about: &deconvoy_mix::Group) -> Group {
        Group {
            name: about.name.clone(),
            gil: about.gil,
            ended_at: 0,
            waits: Lengths::new(),
            answers: Lengths::new(),
        }
    }
}

/// What is counted of all together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Totals {
    /// Of the simulation.
    pub events: u64,
    /// Of the policy.
    pub steps: u64,
    /// Drop requests.
    pub asks: u64,
    /// Releases while one was out.
    pub forced: u64,
    /// Threads that the scheduler made wait for their core.
    pub preempted: u64,
    /// The longest that a thread was ready and did not run.
    pub longest_ready_ns: u64,
}

/// What became of a group.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GroupOutcome {
    pub name: String,
    pub threads: u32,
    /// Rounds of its loop, all threads together.
    pub rounds: u64,
    pub acquired: u64,
    pub held_ns: u64,
    pub waited_ns: u64,
    pub ran_ns: u64,
    /// Of what its threads held: 1 if all held as long.
    pub jain: f64,
    pub least_held_ns: u64,
    /// The longest wait for the lock, those included that have not ended.
    pub longest_wait_ns: u64,
    pub waits: Summary,
    /// From a message sent to its answer.
    pub answers: Summary,
    /// When its last thread was done; 0: none was.
    pub ended_ns: u64,
}

/// What came of a run, in virtual time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    pub elapsed_ns: u64,
    /// How often the lock went from one thread to another.
    pub gil_switches: u64,
    /// Changes of thread on all cores.
    pub context_switches: u64,
    pub totals: Totals,
    pub groups: Vec<GroupOutcome>,
}

/// Jain's index of fairness (1984): 1 if all are equal, 1/n if one has all.
fn jain(shares: impl Iterator<Item = u64> + Clone) -> f64 {
    let sum: f64 = shares.clone().map(|share| share as f64).sum();
    let squares: f64 = shares.clone().map(|share| (share as f64) * (share as f64)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.count() as f64 * squares) }
}

impl Outcome {
    pub(crate) fn of<O: Observer + Placed>(sim: &mut Sim<'_, O>) -> Outcome {
        if let Hold::Held(holder) = sim.lock.hold {
            let held = sim.now.saturating_sub(sim.lock.since);
            sim.thread(holder).held += held;
        }
        let groups = (0..sim.groups.len()).map(|number| group(sim, number)).collect();
        Outcome {
            elapsed_ns: sim.now - BEGUN,
            gil_switches: sim.lock.switches,
            context_switches: sim.cores.iter().map(|core| core.switches).sum(),
            totals: sim.totals,
            groups,
        }
    }
}

fn group<O: Observer + Placed>(sim: &Sim<'_, O>, number: usize) -> GroupOutcome {
    let about = &sim.groups[number];
    let mine = || sim.threads.iter().filter(move |thread| thread.group as usize == number);
    let open = mine().map(|thread| sim.now.saturating_sub(thread.waits_since)).max().unwrap_or(0);
    GroupOutcome {
        name: about.name.clone(),
        threads: mine().count() as u32,
        rounds: mine().map(|thread| thread.done).sum(),
        acquired: mine().map(|thread| thread.acquired).sum(),
        held_ns: mine().map(|thread| thread.held).sum(),
        waited_ns: mine().map(|thread| thread.waited).sum(),
        ran_ns: mine().map(|thread| thread.ran).sum(),
        jain: jain(mine().map(|thread| thread.held)),
        least_held_ns: mine().map(|thread| thread.held).min().unwrap_or(0),
        longest_wait_ns: mine().map(|thread| thread.longest_wait).max().unwrap_or(0).max(open),
        waits: about.waits.summary(),
        answers: about.answers.summary(),
        ended_ns: about.ended_at.saturating_sub(BEGUN),
    }
}
