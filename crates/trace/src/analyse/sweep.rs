//! What the events add up to: exact lengths, who waited behind whom, and the evidence that the
//! findings rest on.

mod answers;
mod character;
mod pairs;
pub mod walk;

use std::collections::HashMap;

use crate::read::Trace;

use super::kinds::Kinds;

use answers::Deaf;
use character::{Character, Usage};
use pairs::{Pair, PairSums};
use walk::{Behind, Hold, Limits, Visitor, Wait, walk};

const MILLISECOND_NS: u64 = 1_000_000;

/// A holder heeds a drop request within microseconds when it runs bytecode. Two intervals are
/// beyond what a busy machine's scheduler does to it now and then, and so are 10 ms.
const SLOW_ANSWER_INTERVALS: u64 = 2;
const SLOW_ANSWER_NS: u64 = 10 * MILLISECOND_NS;

/// A hold of a quarter of an interval is computing; what comes between two blocking calls of an
/// I/O-bound thread is far below.
const LONG_HOLD_SHARE: u64 = 4;

/// Half an interval is waited only behind long holds; below half a millisecond nobody notices.
const LONG_WAIT_SHARE: u64 = 2;
const LONG_WAIT_NS: u64 = MILLISECOND_NS / 2;

/// All lengths of the waits and holds of a thread, or of a kind, sorted.
#[derive(Clone, Default, Debug)]
pub struct Lengths {
    pub waits: Vec<u64>,
    pub holds: Vec<u64>,
}

/// An I/O-bound thread's long waits behind long holds.
#[derive(Clone, Default, Debug)]
pub struct Convoyed {
    /// Sorted.
    pub lengths: Vec<u64>,
    pub total_ns: u64,
    pub behind: HashMap<u16, u64>,
}

/// A thread's answers to drop requests, and the slow ones among them.
#[derive(Clone, Default, Debug)]
pub struct Hogging {
    pub answers: u64,
    pub times: u64,
    /// From the request to the release.
    pub slow_ns: u64,
    pub longest_ns: u64,
    /// How long others waited for it from the request on, together and each.
    pub kept_ns: u64,
    pub kept: HashMap<u16, u64>,
    /// How long they had waited in this hold before.
    pub before_ns: u64,
}

/// A thread's waits beyond all measure.
#[derive(Clone, Default, Debug)]
pub struct Starved {
    pub times: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
    pub behind: HashMap<u16, u64>,
}

/// The result of going through all events.
#[derive(Default)]
pub struct Sweep {
    pub kinds: Kinds,
    pub deaf: Deaf,
    /// By thread. Whether it computes is told of each, whether it is brief of its kind.
    pub characters: Vec<Character>,
    pub usages: Vec<Usage>,
    /// Added up by kind, as is what follows: by the thread that stands for it.
    pub together: Vec<Usage>,
    pub lengths: Vec<Lengths>,
    /// Most time together first.
    pub pairs: Vec<Pair>,
    pub behind_holders_ns: u64,
    pub lock_free_ns: u64,
    pub unattributed_ns: u64,
    pub longest_wait_ns: u64,
    pub convoyed: HashMap<u16, Convoyed>,
    pub hogging: HashMap<u16, Hogging>,
    pub starved: HashMap<u16, Starved>,
    pub failed_wakeups: u64,
    /// Switches on request from one computing thread to another.
    pub contested_switches: u64,
}

impl Sweep {
    /// `interval_ns`: the switch interval.
    pub fn over(trace: &Trace, interval_ns: u64) -> Sweep {
        let of_events = trace.events.iter().map(|event| event.thread);
        let of_table = trace.threads.iter().map(|thread| thread.index);
        let threads = of_events.chain(of_table).max().map_or(0, |last| usize::from(last) + 1);
        let usages = Usage::of(trace, threads, interval_ns);
        let mut characters: Vec<Character> =
            usages.iter().map(|usage| Character::of(usage, interval_ns)).collect();
        let computes = |thread| characters.get(usize::from(thread)).is_some_and(|it| it.computes);
        let kinds = Kinds::of(trace, computes);
        let together = Usage::of_kinds(&usages, &kinds);
        for (thread, character) in (0..=u16::MAX).zip(&mut characters) {
            if let Some(usage) = together.get(usize::from(kinds.kind(thread))) {
                character.brief = Character::of(usage, interval_ns).brief;
            }
        }
        let deaf = Deaf::of(trace, threads, &kinds, slow_answer_ns(interval_ns));
        let long_hold_ns = interval_ns / LONG_HOLD_SHARE;
        let limits = Limits { interval_ns, long_hold_ns, kinds: &kinds, deaf: &deaf };
        let computing = characters.iter().filter(|character| character.computes).count() as u64;
        let mut first = FirstPass {
            limits,
            long_wait_ns: (interval_ns / LONG_WAIT_SHARE).max(LONG_WAIT_NS),
            starved_ns: starved_ns(interval_ns, computing),
            sums: PairSums::new(threads),
            sweep: Sweep {
                characters,
                usages,
                together,
                lengths: vec![Lengths::default(); threads],
                ..Sweep::default()
            },
        };
        walk(trace, limits, &mut first);
        let FirstPass { sums, mut sweep, .. } = first;
        for lengths in &mut sweep.lengths {
            lengths.waits.sort_unstable();
            lengths.holds.sort_unstable();
        }
        for convoyed in sweep.convoyed.values_mut() {
            convoyed.lengths.sort_unstable();
        }
        sweep.pairs = sums.longest(trace, limits);
        (sweep.kinds, sweep.deaf) = (kinds, deaf);
        sweep
    }

    pub fn computes(&self, thread: u16) -> bool {
        self.characters.get(usize::from(thread)).is_some_and(|character| character.computes)
    }
}

fn slow_answer_ns(interval_ns: u64) -> u64 {
    interval_ns.saturating_mul(SLOW_ANSWER_INTERVALS).max(SLOW_ANSWER_NS)
}

/// A wait of 20 intervals is starvation, unless many compute: in turn, each of them sees all the
/// others use an interval, and twice that is luck. With intervals set very short nobody notices
/// before 100 ms, which is 20 of CPython's own, and a busy machine makes lesser waits.
fn starved_ns(interval_ns: u64, computing: u64) -> u64 {
    const INTERVALS: u64 = 20;
    const LEAST_NS: u64 = 100 * MILLISECOND_NS;
    interval_ns.saturating_mul(INTERVALS + 2 * computing).max(LEAST_NS)
}

struct FirstPass<'l> {
    limits: Limits<'l>,
    long_wait_ns: u64,
    starved_ns: u64,
    sums: PairSums,
    sweep: Sweep,
}

/// The numbers of a damaged trace can be anything.
fn grow(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}

fn add(to: &mut HashMap<u16, u64>, thread: u16, ns: u64) {
    grow(to.entry(thread).or_default(), ns);
}

impl Visitor for FirstPass<'_> {
    fn wants(&self, _: u16) -> bool {
        true
    }

    fn wait(&mut self, wait: &Wait, behind: &[Behind]) {
        let length_ns = wait.length_ns();
        let sweep = &mut self.sweep;
        grow(&mut sweep.lock_free_ns, wait.lock_free_ns);
        grow(&mut sweep.unattributed_ns, wait.unattributed_ns);
        sweep.longest_wait_ns = sweep.longest_wait_ns.max(length_ns);
        if wait.whole
            && let Some(lengths) = sweep.lengths.get_mut(usize::from(wait.thread))
        {
            lengths.waits.push(length_ns);
        }
        let mut behind_long_ns = 0u64;
        for part in behind {
            grow(&mut sweep.behind_holders_ns, part.total_ns);
            grow(&mut behind_long_ns, part.long_ns);
            self.sums.add(wait.thread, part);
        }
        let brief = sweep.characters.get(usize::from(wait.thread)).is_some_and(|it| it.brief);
        if brief && wait.whole && behind_long_ns >= self.long_wait_ns {
            let convoyed = sweep.convoyed.entry(wait.thread).or_default();
            convoyed.lengths.push(length_ns);
            grow(&mut convoyed.total_ns, length_ns);
            for part in behind.iter().filter(|part| part.long_ns > 0) {
                add(&mut convoyed.behind, part.thread, part.long_ns);
            }
        }
        let excused_ns = wait.behind_slow_ns.saturating_add(wait.late_ns);
        if length_ns.saturating_sub(excused_ns) >= self.starved_ns {
            let starved = sweep.starved.entry(wait.thread).or_default();
            starved.times += 1;
            grow(&mut starved.total_ns, length_ns);
            starved.longest_ns = starved.longest_ns.max(length_ns);
            for part in behind {
                add(&mut starved.behind, part.thread, part.total_ns);
            }
        }
    }

    fn hold(&mut self, hold: &Hold, waiting: &mut dyn Iterator<Item = (u16, u64)>) {
        if hold.whole
            && let Some(lengths) = self.sweep.lengths.get_mut(usize::from(hold.thread))
        {
            lengths.holds.push(hold.length_ns());
        }
        let Some(answer_ns) = hold.answer_ns else { return };
        let hogging = self.sweep.hogging.entry(hold.thread).or_default();
        hogging.answers += 1;
        if answer_ns < self.limits.deaf.slow_ns(hold.thread) {
            return;
        }
        hogging.times += 1;
        grow(&mut hogging.slow_ns, answer_ns);
        hogging.longest_ns = hogging.longest_ns.max(answer_ns);
        let asked_ns = hold.until_ns - answer_ns;
        for (thread, since_ns) in waiting {
            let kept_ns = hold.until_ns.saturating_sub(since_ns.max(asked_ns));
            let since_ns = since_ns.max(hold.since_ns);
            grow(&mut hogging.before_ns, asked_ns.saturating_sub(since_ns));
            grow(&mut hogging.kept_ns, kept_ns);
            add(&mut hogging.kept, thread, kept_ns);
        }
    }

    fn failed_wakeup(&mut self, _thread: u16) {
        self.sweep.failed_wakeups += 1;
    }

    fn switch_on_request(&mut self, from: u16, to: u16) {
        if self.sweep.computes(from) && self.sweep.computes(to) {
            self.sweep.contested_switches += 1;
        }
    }
}
