//! What the threads of a workload did, group by group: what an experiment asks of a run, be it of
//! the simulator, the lab or an interpreter.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::format::{Kind, OTHERS};
use crate::read::Trace;

/// The threads of one group.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Group {
    pub name: String,
    pub threads: u64,
    pub acquires: u64,
    /// When the first of them began and the last one ended, since the start of the trace.
    pub start_ns: u64,
    pub end_ns: u64,
    /// How long each of them had the lock.
    pub held_ns: Vec<u64>,
    /// Of all acquisitions, those at once as well; one that never came to its end waited until then.
    pub wait_p50_ns: u64,
    pub wait_p99_ns: u64,
    pub longest_wait_ns: u64,
}

/// Which of `names` a thread of the name `thread` belongs to: its name, or that with a number behind a
/// dash.
fn group_of<'n>(thread: &str, names: &'n [String]) -> Option<&'n str> {
    let named = |wanted: &str| names.iter().map(String::as_str).find(|&name| name == wanted);
    named(thread).or_else(|| {
        let (group, number) = thread.rsplit_once('-')?;
        number.parse::<u32>().ok().and_then(|_| named(group))
    })
}

fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or(0)
}

/// The groups of those names; other threads are left out. Each wait is read from the events, so none of these may have been
/// overwritten; one that a thread was killed in the middle of does not matter.
pub fn groups(trace: &Trace, names: &[String]) -> Vec<Group> {
    let mut since: BTreeMap<u16, u64> = BTreeMap::new();
    let mut waits: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for event in &trace.events {
        match event.kind {
            Kind::Arrive => {
                since.entry(event.thread).or_insert(event.at_ns);
            }
            Kind::Acquire => {
                let waited =
                    since.remove(&event.thread).map_or(0, |from| event.at_ns.saturating_sub(from));
                waits.entry(event.thread).or_default().push(waited);
            }
            _ => {}
        }
    }
    for (thread, from) in since {
        waits.entry(thread).or_default().push(trace.end_ns.saturating_sub(from));
    }
    let mut found: BTreeMap<&str, (Group, Vec<u64>)> = BTreeMap::new();
    for thread in trace.threads.iter().filter(|thread| thread.index != OTHERS) {
        let Some(name) = group_of(&thread.name, names) else { continue };
        let (group, all) = found.entry(name).or_insert_with(|| {
            let new = Group { name: name.to_owned(), start_ns: u64::MAX, ..Group::default() };
            (new, Vec::new())
        });
        group.start_ns = group.start_ns.min(thread.start_ns);
        group.end_ns = group.end_ns.max(thread.end_ns);
        group.threads += 1;
        group.acquires += thread.acquires;
        group.held_ns.push(thread.holding_ns);
        all.append(waits.get_mut(&thread.index).unwrap_or(&mut Vec::new()));
    }
    let finish = |(mut group, mut all): (Group, Vec<u64>)| {
        all.sort_unstable();
        group.wait_p50_ns = quantile(&all, 50);
        group.wait_p99_ns = quantile(&all, 99);
        group.longest_wait_ns = all.last().copied().unwrap_or(0);
        group
    };
    found.into_values().map(finish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_the_group_that_it_is_named_after() {
        let names = ["io", "stage-1", "a-b"].map(str::to_owned);
        for (thread, group) in [
            ("io-12", Some("io")),
            ("io", Some("io")),
            ("io-x", None),
            ("stage-1", Some("stage-1")),
            ("stage-1-0", Some("stage-1")),
            ("stage", None),
            ("a-b-3", Some("a-b")),
            ("", None),
        ] {
            assert_eq!(group_of(thread, &names), group, "{thread}");
        }
    }

    #[test]
    fn quantiles_are_of_what_there_is() {
        assert_eq!(quantile(&[], 99), 0);
        assert_eq!(quantile(&[7], 99), 7);
        assert_eq!(quantile(&(0..200).collect::<Vec<_>>(), 99), 198);
    }
}
