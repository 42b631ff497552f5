//! The convoy: threads that need the lock for a moment queue behind one that keeps it.
//!
//! Source: slides 58 to 62 and 67 to 69 of Beazley's "In Search of the Perfect GIL" (2010).

use crate::analyse::sweep::Convoyed;
use crate::analyse::words::{self, length};

use super::{Context, Finding, FindingKind, chief, names};
use crate::analyse::quantile_of;

/// Fewer are chance: an interpreter that starts and ends has some.
const CONVOY_LEAST_TIMES: u64 = 10;
/// Of the victim's time: below one part in a hundred it is not worth a word.
const CONVOY_LEAST_SHARE: f64 = 0.01;

impl Context<'_> {
    pub(super) fn is_convoyed(&self, thread: u16, convoyed: &Convoyed) -> bool {
        let life_ns = self.sweep.kinds.get(thread).map_or(0, |kind| kind.covered_ns);
        convoyed.lengths.len() as u64 >= CONVOY_LEAST_TIMES
            && convoyed.total_ns as f64 >= life_ns as f64 * CONVOY_LEAST_SHARE
    }

    pub(super) fn convoy(&self) -> Option<Finding> {
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
            "{} waited {} {} behind {}",
            self.labels.of(worst).label,
            words::of(times, "time", "times"),
            self.about(median_ns),
            names(&blockers),
        );
        text += &match blockers.as_slice() {
            [one] if self.count(&blockers) == 1 => {
                format!(", which computes: {}", self.held_of_life(one))
            }
            several => format!(
                ", which compute: {} of {} together",
                length(
                    several.iter().map(|thread| self.held_ns(thread)).fold(0, u64::saturating_add)
                ),
                length(self.trace.end_ns),
            ),
        };
        let holds = self.sweep.lengths.get(usize::from(worst));
        let needs_ns = holds.map_or(0, |lengths| quantile_of(&lengths.holds, 0.5));
        let victims = self.labels(victims.iter().map(|&(thread, _)| thread));
        let (all, alike) = (self.count(&victims), self.count(&victims[..1]));
        text += &format!(
            "{}. {} the lock for {} at a time.",
            self.meanwhile(),
            if alike == 1 { "It needs" } else { "Each needs" },
            length(needs_ns)
        );
        if let others @ 1.. = all - alike {
            text += &format!(
                " {} like {}; all of them {} together.",
                words::of(others, "other thread waits", "other threads wait"),
                if alike == 1 { "it" } else { "them" },
                length(lost_ns)
            );
        }
        Some(Finding {
            kind: FindingKind::Convoy,
            text,
            mend: self.run(),
            lost_ns,
            victims,
            blockers,
            times,
            median_ns,
            longest_ns: convoyed.lengths.last().copied().unwrap_or(0),
            per_s: self.per_s(times),
        })
    }
}
