//! Starvation: a thread does not get its turn.

use crate::analyse::sweep::Starved;
use crate::analyse::words::{self, length};

use super::{Context, Finding, FindingKind, chief, names};

impl Context<'_> {
    /// Victims of a convoy are told of there.
    pub(super) fn starvation(&self) -> Option<Finding> {
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
        let victims = self.labels(victims.iter().map(|&(thread, _)| thread));
        let (all, alike) = (self.count(&victims), self.count(&victims[..1]));
        let mut text = format!(
            "{} {} waited {} for the lock, with a switch interval of {}",
            self.labels.of(worst).label,
            if alike == 1 { "starves: it" } else { "starve: one" },
            length(starved.longest_ns),
            length(self.interval_ns),
        );
        if !blockers.is_empty() {
            text += &format!(", while {} had it", names(&blockers));
        }
        text += &format!(
            "; {} like that{}.",
            words::of(starved.times, "wait", "waits"),
            self.meanwhile()
        );
        if let others @ 1.. = all - alike {
            text += &format!(" So did {}.", words::of(others, "other thread", "other threads"));
        }
        Some(Finding {
            kind: FindingKind::Starvation,
            text,
            mend: self.run(),
            lost_ns,
            victims,
            blockers,
            times: starved.times,
            median_ns: 0,
            longest_ns: starved.longest_ns,
            per_s: self.per_s(starved.times),
        })
    }
}
