//! The battle: threads take the lock from each other so often that it costs more than it gives.
//!
//! Source: slides 49 to 51 of Beazley's "In Search of the Perfect GIL" (2010).

use crate::analyse::words::{count, length};

use super::{Context, Finding, FindingKind, names};

/// CPython's own interval makes 200 switches a second, a program that blocks as fast as it can
/// some thousands. A thousand that give nothing cost some percent (see below).
const BATTLE_LEAST_PER_S: f64 = 1_000.0;
/// A sleep and a wake-up through a futex on a virtual machine, as measured.
const SWITCH_COST_NS: u64 = 35_000;

impl Context<'_> {
    pub(super) fn battle(&self) -> Option<Finding> {
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
}
