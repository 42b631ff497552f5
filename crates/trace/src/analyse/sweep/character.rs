//! What kind of user of the lock a thread is: whether it computes, or needs the lock for a moment
//! at a time.

use crate::analyse::kinds::Kinds;
use crate::format::{Event, Kind, OTHERS};
use crate::histogram::{BUCKETS, bucket, quantile_ns};
use crate::read::Trace;

/// An I/O-bound thread needs the lock for a tenth of an interval at most, half of the times, and
/// is asked to give it up in at most a tenth of them.
const BRIEF_SHARE: u64 = 10;
const BRIEF_NS: u64 = 50_000;

/// A thread that was preempted comes back as soon as it has a processor. One that is not back
/// after so long was asked while it was on its way into a blocking call.
const BACK_INTERVALS: u64 = 4;
const BACK_NS: u64 = 50_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Character {
    /// Holds the lock more than it stays away, and long at a time or until it is asked.
    pub computes: bool,
    /// Needs it for a moment at a time.
    pub brief: bool,
}

impl Character {
    pub fn of(usage: &Usage, interval_ns: u64) -> Character {
        let Some(mean_hold_ns) = usage.holding_ns.checked_div(usage.holds) else {
            return Character::default();
        };
        let often_preempted = usage.on_request.saturating_mul(2) >= usage.holds;
        let seldom_preempted = usage.on_request.saturating_mul(BRIEF_SHARE) <= usage.holds;
        let median_ns = quantile_ns(&usage.hold_counts, 0.5).unwrap_or(mean_hold_ns);
        let brief_ns = (interval_ns / BRIEF_SHARE).max(BRIEF_NS);
        Character {
            computes: usage.holding_ns >= usage.absent_ns
                && usage.holding_ns >= interval_ns
                && (mean_hold_ns >= interval_ns / 2 || often_preempted),
            brief: median_ns <= brief_ns && seldom_preempted,
        }
    }
}

/// How a thread used the lock in the part of the run that the events cover.
///
/// The table's sums would not do: there the time from a preemption to the next attempt, which on
/// a busy machine is long, passes for time elsewhere.
#[derive(Clone, Debug)]
pub struct Usage {
    pub holds: u64,
    /// Those that ended with a drop request out. More than the table's `forced`: CPython skips
    /// the forced wait when another thread is quick to take the lock.
    pub on_request: u64,
    pub holding_ns: u64,
    /// Away of its own accord.
    pub absent_ns: u64,
    hold_counts: [u32; BUCKETS],
    since: Since,
}

/// What the thread is doing, as far as the events tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Since {
    Unknown,
    Waiting,
    Holding(u64),
    Away { from_ns: u64, asked: bool },
}

impl Usage {
    const NONE: Usage = Usage {
        holds: 0,
        on_request: 0,
        holding_ns: 0,
        absent_ns: 0,
        hold_counts: [0; BUCKETS],
        since: Since::Unknown,
    };

    /// By thread.
    pub fn of(trace: &Trace, threads: usize, interval_ns: u64) -> Vec<Usage> {
        let mut usages = vec![Usage::NONE; threads];
        let back_ns = interval_ns.saturating_mul(BACK_INTERVALS).max(BACK_NS);
        for event in &trace.events {
            if let Some(usage) = usages.get_mut(usize::from(event.thread)) {
                usage.event(event, back_ns);
            }
        }
        let places = usages.iter_mut().enumerate();
        for (place, usage) in places.filter(|&(place, _)| place != usize::from(OTHERS)) {
            match usage.since {
                Since::Holding(from_ns) => usage.held(trace.end_ns.saturating_sub(from_ns)),
                Since::Away { .. } => usage.back(trace.end_ns, back_ns),
                Since::Waiting | Since::Unknown => {}
            }
            // It has held the lock since before the first event that is left, or nobody did.
            let sums = trace.thread(place as u16).filter(|_| usage.since == Since::Unknown);
            if let Some(sums) = sums.filter(|_| trace.overwritten > 0) {
                usage.holds = sums.acquires;
                usage.holding_ns = sums.holding_ns;
                usage.absent_ns = sums.elsewhere_ns;
            }
        }
        usages
    }

    /// What the usages of each kind add up to, under the thread that stands for it.
    pub fn of_kinds(usages: &[Usage], kinds: &Kinds) -> Vec<Usage> {
        let mut together = vec![Usage::NONE; usages.len()];
        for (thread, usage) in usages.iter().enumerate() {
            if let Some(sum) = together.get_mut(usize::from(kinds.kind(thread as u16))) {
                sum.add(usage);
            }
        }
        together
    }

    fn add(&mut self, other: &Usage) {
        self.holds = self.holds.saturating_add(other.holds);
        self.on_request = self.on_request.saturating_add(other.on_request);
        self.holding_ns = self.holding_ns.saturating_add(other.holding_ns);
        self.absent_ns = self.absent_ns.saturating_add(other.absent_ns);
        for (count, &more) in self.hold_counts.iter_mut().zip(&other.hold_counts) {
            *count = count.saturating_add(more);
        }
    }

    fn event(&mut self, event: &Event, back_ns: u64) {
        let at_ns = event.at_ns;
        match (event.kind, self.since) {
            (Kind::Arrive | Kind::Acquire | Kind::End, Since::Away { .. }) => {
                self.back(at_ns, back_ns);
            }
            (Kind::Release | Kind::End, Since::Holding(from_ns)) => {
                self.held(at_ns.saturating_sub(from_ns));
                self.on_request += u64::from(event.argument != 0);
            }
            _ => {}
        }
        self.since = match event.kind {
            Kind::Arrive => Since::Waiting,
            Kind::Acquire => Since::Holding(at_ns),
            Kind::Release => Since::Away { from_ns: at_ns, asked: event.argument != 0 },
            // Its record may go on with another thread.
            Kind::Start | Kind::End => Since::Waiting,
            _ => self.since,
        };
    }

    fn held(&mut self, length_ns: u64) {
        self.holds += 1;
        self.holding_ns = self.holding_ns.saturating_add(length_ns);
        if let Some(count) = self.hold_counts.get_mut(bucket(length_ns)) {
            *count = count.saturating_add(1);
        }
    }

    fn back(&mut self, at_ns: u64, back_ns: u64) {
        let Since::Away { from_ns, asked } = self.since else { return };
        let away_ns = at_ns.saturating_sub(from_ns);
        if !asked || away_ns > back_ns {
            self.absent_ns = self.absent_ns.saturating_add(away_ns);
        }
    }
}
