//! What is wrong, in plain words, each with its evidence and the mend.
//!
//! Each finding is one rule over the evidence that the sweep gathered. What counts as long, brief
//! or slow is defined there; here is when it is often enough to tell somebody.

use std::collections::HashMap;

use serde::Serialize;

use crate::read::Trace;

use super::sweep::{Convoyed, Hogging, Starved, Sweep, slow_answer_ns};
use super::words::{self, count, length, list};
use super::{Labels, ThreadLabel, quantile_of};

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

/// Fewer are chance: an interpreter that starts and ends has some.
const CONVOY_LEAST_TIMES: u64 = 10;
/// Of the victim's time: below one part in a hundred it is not worth a word.
const CONVOY_LEAST_SHARE: f64 = 0.01;

/// CPython's own interval makes 200 switches a second, a program that blocks as fast as it can
/// some thousands. A thousand that give nothing cost some percent (see below).
const BATTLE_LEAST_PER_S: f64 = 1_000.0;
/// A sleep and a wake-up through a futex on a virtual machine, as measured.
const SWITCH_COST_NS: u64 = 35_000;

/// A single slow answer that is worth a word, and how often a lesser one has to occur: a busy
/// machine's scheduler makes some as well.
const HOG_LONGEST_NS: u64 = 30_000_000;
const HOG_LEAST_TIMES: u64 = 5;

struct Context<'c> {
    trace: &'c Trace,
    interval_ns: u64,
    labels: &'c Labels,
    sweep: &'c Sweep,
}

/// The findings, worst first; one of kind `Nothing` if there is none.
pub(super) fn all(trace: &Trace, interval_ns: u64, labels: &Labels, sweep: &Sweep) -> Vec<Finding> {
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
        threads.into_iter().map(|thread| self.labels.of_thread(thread)).collect()
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
            _ if about.stock => format!("deconvoy run -- {command}"),
            Some("adaptive") | None => "this ran under deconvoy's own policy already: please \
                 report it, with this trace"
                .to_owned(),
            Some(_) => format!("deconvoy run --policy adaptive -- {command}"),
        }
    }

    /// "one switch interval", "4 switch intervals".
    fn intervals(&self, ns: u64) -> String {
        match (ns as f64 / self.interval_ns as f64).round() as u64 {
            0 => "half a switch interval".to_owned(),
            1 => "one switch interval".to_owned(),
            many => format!("{} switch intervals", count(many)),
        }
    }

    /// "20.1 s of its 21.3 s".
    fn held_of_life(&self, thread: &ThreadLabel) -> String {
        self.trace.thread(thread.index).map_or_else(String::new, |sums| {
            format!("{} of its {}", length(sums.holding_ns), length(sums.life_ns()))
        })
    }

    fn is_convoyed(&self, thread: u16, convoyed: &Convoyed) -> bool {
        let life_ns = self.trace.thread(thread).map_or(0, |sums| {
            sums.end_ns.saturating_sub(sums.start_ns.max(self.trace.covered_from_ns()))
        });
        convoyed.lengths.len() as u64 >= CONVOY_LEAST_TIMES
            && convoyed.total_ns as f64 >= life_ns as f64 * CONVOY_LEAST_SHARE
    }

    fn convoy(&self) -> Option<Finding> {
        let mut victims: Vec<(u16, &Convoyed)> = self
            .sweep
            .convoyed
            .iter()
            .map(|(&thread, convoyed)| (thread, convoyed))
            .filter(|&(thread, convoyed)| self.is_convoyed(thread, convoyed))
            .collect();
        victims.sort_by_key(|&(thread, convoyed)| (u64::MAX - convoyed.total_ns, thread));
        let &(worst, convoyed) = victims.first()?;
        let blockers = self.labels(chief(&convoyed.behind));
        let times = convoyed.lengths.len() as u64;
        let median_ns = quantile_of(&convoyed.lengths, 0.5);
        let lost_ns =
            victims.iter().fold(0u64, |sum, (_, convoyed)| sum.saturating_add(convoyed.total_ns));
        let mut text = format!(
            "{} waited {} about {} ({}) behind {}",
            self.labels.of_thread(worst).label,
            words::of(times, "time", "times"),
            self.intervals(median_ns),
            length(median_ns),
            names(&blockers),
        );
        match blockers.as_slice() {
            [one] => text += &format!(", which computes: {}", self.held_of_life(one)),
            [first, ..] => {
                text += &format!(", which compute: {} {}", first.label, self.held_of_life(first));
            }
            [] => {}
        }
        let needs_ns = self
            .trace
            .thread(worst)
            .and_then(|sums| crate::histogram::quantile_ns(&sums.hold_counts, 0.5));
        text += &format!(
            "{}. It needs the lock for {} at a time.",
            self.meanwhile(),
            length(needs_ns.unwrap_or(0))
        );
        if let others @ 1.. = victims.len() - 1 {
            text += &format!(
                " {} wait like it, {} together.",
                words::of(others as u64, "other thread does", "other threads"),
                length(lost_ns)
            );
        }
        Some(Finding {
            kind: FindingKind::Convoy,
            text,
            mend: self.run(),
            lost_ns,
            victims: self.labels(victims.iter().map(|&(thread, _)| thread)),
            blockers,
            times,
            median_ns,
            longest_ns: convoyed.lengths.last().copied().unwrap_or(0),
            per_s: self.per_s(times),
        })
    }

    fn computing(&self) -> Vec<u16> {
        let mut threads: Vec<_> =
            self.trace.threads.iter().filter(|sums| self.sweep.computes(sums.index)).collect();
        threads.sort_by_key(|sums| std::cmp::Reverse(sums.holding_ns));
        threads.iter().map(|sums| sums.index).collect()
    }

    fn battle(&self) -> Option<Finding> {
        let (failed, contested) = (self.sweep.failed_wakeups, self.sweep.contested_switches);
        let times = failed.saturating_add(contested);
        if self.per_s(times) < BATTLE_LEAST_PER_S {
            return None;
        }
        let fighters = self.labels(self.computing());
        let what = match (failed, contested) {
            (_, 0) => format!("{} wake-ups found the lock taken again", count(failed)),
            (0, _) => format!("{} forced switches between threads that compute", count(contested)),
            _ => format!(
                "{} forced switches between threads that compute and {} wake-ups that found the \
                 lock taken again",
                count(contested),
                count(failed)
            ),
        };
        let who = match fighters.as_slice() {
            [] => "The threads".to_owned(),
            _ => names(&fighters),
        };
        let text = format!(
            "{who} fight for the lock: {what}{}, {} a second, with a switch interval of {}.",
            self.meanwhile(),
            count(self.per_s(times) as u64),
            length(self.interval_ns),
        );
        let short = self.interval_ns < 1_000_000;
        let mend = match short {
            true => format!(
                "leave the switch interval at 5 ms (sys.setswitchinterval); for latency: {}",
                self.run()
            ),
            false => self.run(),
        };
        let lost_ns = times.saturating_mul(SWITCH_COST_NS);
        Some(Finding {
            kind: FindingKind::Battle,
            text,
            mend,
            lost_ns,
            victims: fighters.clone(),
            blockers: fighters,
            times,
            median_ns: 0,
            longest_ns: 0,
            per_s: self.per_s(times),
        })
    }

    /// The worst hog: by the time that it kept others waiting.
    fn hog(&self) -> Option<Finding> {
        let (&thread, hogging) = self
            .sweep
            .hogging
            .iter()
            .filter(|(_, hogging)| {
                hogging.longest_ns >= HOG_LONGEST_NS || hogging.times >= HOG_LEAST_TIMES
            })
            .max_by_key(|&(&thread, hogging)| (hogging.kept_ns, thread))?;
        let Hogging { times, longest_ns, kept_ns, ref kept } = *hogging;
        let victims = self.labels(most(kept));
        let blocker = self.labels.of_thread(thread);
        let mut text = format!(
            "{} kept the lock although asked for it: {}{} for more than {}, the longest {}",
            blocker.label,
            words::of(times, "time", "times"),
            self.meanwhile(),
            length(slow_answer_ns(self.interval_ns)),
            length(longest_ns),
        );
        if !victims.is_empty() {
            text +=
                &format!(". That kept {} waiting, {} together", names(&victims), length(kept_ns));
        }
        text += ". It runs C code that keeps the lock, or the system gave it no processor.";
        Some(Finding {
            kind: FindingKind::Hog,
            text,
            mend:
                "no policy can preempt C code: let it release the lock (Py_BEGIN_ALLOW_THREADS), \
                   give it less at a time, or move it to a process of its own"
                    .to_owned(),
            lost_ns: kept_ns,
            victims,
            blockers: vec![blocker],
            times,
            median_ns: 0,
            longest_ns,
            per_s: self.per_s(times),
        })
    }

    /// Victims of a convoy are told of there.
    fn starvation(&self) -> Option<Finding> {
        let convoyed = |thread: u16| {
            let found = self.sweep.convoyed.get(&thread);
            found.is_some_and(|convoyed| self.is_convoyed(thread, convoyed))
        };
        let mut victims: Vec<(u16, &Starved)> = self
            .sweep
            .starved
            .iter()
            .map(|(&thread, starved)| (thread, starved))
            .filter(|&(thread, _)| !convoyed(thread))
            .collect();
        victims.sort_by_key(|&(thread, starved)| (u64::MAX - starved.longest_ns, thread));
        let &(worst, starved) = victims.first()?;
        let blockers = self.labels(chief(&starved.behind));
        let lost_ns =
            victims.iter().fold(0u64, |sum, (_, starved)| sum.saturating_add(starved.total_ns));
        let mut text = format!(
            "{} starves: it waited {} for the lock, {}",
            self.labels.of_thread(worst).label,
            length(starved.longest_ns),
            self.intervals(starved.longest_ns),
        );
        if !blockers.is_empty() {
            text += &format!(", while {} had it", names(&blockers));
        }
        text += &format!(
            "; {} like that{}.",
            words::of(starved.times, "wait", "waits"),
            self.meanwhile()
        );
        if let others @ 1.. = victims.len() - 1 {
            text +=
                &format!(" So did {}.", words::of(others as u64, "other thread", "other threads"));
        }
        Some(Finding {
            kind: FindingKind::Starvation,
            text,
            mend: self.run(),
            lost_ns,
            victims: self.labels(victims.iter().map(|&(thread, _)| thread)),
            blockers,
            times: starved.times,
            median_ns: 0,
            longest_ns: starved.longest_ns,
            per_s: self.per_s(starved.times),
        })
    }

    fn nothing(&self) -> Finding {
        let sum = |number: fn(&crate::read::ThreadSums) -> u64| {
            self.trace.threads.iter().map(number).fold(0, u64::saturating_add)
        };
        let share = |ns: u64, of_ns: u64| ns as f64 * 100.0 / of_ns.max(1) as f64;
        let longest_ns = self.trace.threads.iter().map(|sums| sums.longest_wait_ns).max();
        let longest_ns = longest_ns.unwrap_or(0);
        let computing = self.labels(self.computing());
        let text = match computing.as_slice() {
            [_, _, ..] => format!(
                "{} threads compute and share the lock, each in its turn: {}. It was held {:.0} % \
                 of the time. Threads cannot make them faster on this build.",
                count(computing.len() as u64),
                names(&computing),
                share(sum(|sums| sums.holding_ns), self.trace.end_ns).min(100.0),
            ),
            _ => format!(
                "Nothing wrong: the longest wait was {}, and {:.1} % of the threads' time went \
                 into waiting.",
                length(longest_ns),
                share(sum(|sums| sums.waiting_ns), sum(|sums| sums.life_ns())),
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
