//! What there is to choose from, for those who choose.

use crate::{Nanos, adaptive, ticks, timer};

/// A policy, as its users see it.
#[derive(Clone, Copy, Debug)]
pub struct About {
    pub name: &'static str,
    pub summary: &'static str,
    pub example: &'static str,
    /// What it takes behind its name.
    pub takes: Takes,
}

#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// `NAME=VALUE,…`
    Settings(&'static [Setting]),
    /// `PATTERN=PRIORITY,…`
    Rules,
}

/// What a setting is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A length of time, in nanoseconds; written with its unit.
    Time,
    Instructions,
}

/// A number that a policy can be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub unit: Unit,
    /// `None`: the program's own switch interval.
    pub default: Option<u64>,
    /// The least and the most, as a user writes them.
    pub range: (&'static str, &'static str),
    pub meaning: &'static str,
}

const MOST: &str = "10s";

const fn time(
    name: &'static str,
    default: Nanos,
    least: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting { name, unit: Unit::Time, default: Some(default.0), range: (least, MOST), meaning }
}

pub(crate) const ADAPTIVE: &[Setting; 7] = &{
    let p = adaptive::Params::DEFAULT;
    [
        time("slice", p.slice, "100us", "what a thread that computes may have in one turn"),
        time("credit", p.credit, "1us", "the most that a thread can earn by time spent elsewhere"),
        time(
            "wakeup",
            p.wakeup,
            "1us",
            "so much more credit than the holder's preempts; at most the credit",
        ),
        time("grace", p.grace, "0us", "how long the lock is kept for one that is expected back"),
        time("handover", p.handover, "0us", "the same if the next waiter is awake"),
        time("guard", p.guard, "0us", "what a thread may finish before it is asked"),
        time("linger", p.linger, "0us", "how long a waiter stays awake before it sleeps"),
    ]
};

pub(crate) const TIMEOUT: &[Setting; 1] = &[Setting {
    name: "interval",
    unit: Unit::Time,
    default: None,
    range: ("1us", MOST),
    meaning: "how long a waiter waits before it asks",
}];

pub(crate) const TIMER: &[Setting; 1] =
    &[time("interval", timer::Params::DEFAULT.interval, "1us", "the clock at which waiters ask")];

pub(crate) const TICKS: &[Setting; 1] = &[Setting {
    name: "instructions",
    unit: Unit::Instructions,
    default: Some(ticks::Params::DEFAULT.instructions as u64),
    range: ("1", "1000000000"),
    meaning: "from one release by the holder to the next",
}];

/// The policies: the default one first, then back through history.
pub const fn catalogue() -> &'static [About] {
    &[
        About {
            name: "adaptive",
            summary: "credit for time spent elsewhere buys immediate preemption (the default)",
            example: "adaptive:slice=2ms",
            takes: Takes::Settings(ADAPTIVE),
        },
        About {
            name: "priority",
            summary: "static priorities with immediate preemption; starves what is below",
            example: "priority:io-*=10,spinner=-1",
            takes: Takes::Rules,
        },
        About {
            name: "timeout",
            summary: "CPython's own rule: a waiter asks after the switch interval",
            example: "timeout:interval=1ms",
            takes: Takes::Settings(TIMEOUT),
        },
        About {
            name: "timer",
            summary: "MRI 1.9 with fair locks: asked every 10 ms, the oldest waiter is next",
            example: "timer:10ms",
            takes: Takes::Settings(TIMER),
        },
        About {
            name: "mutex",
            summary: "MRI 1.9 on Linux: asked every 10 ms, and whoever is quickest is next",
            example: "mutex:10ms",
            takes: Takes::Settings(TIMER),
        },
        About {
            name: "fifo",
            summary: "CPython 2 with fair locks: each 100 instructions to the oldest waiter",
            example: "fifo:100",
            takes: Takes::Settings(TICKS),
        },
        About {
            name: "ticks",
            summary: "CPython 2: released each 100 instructions, and whoever is quickest is next",
            example: "ticks:100",
            takes: Takes::Settings(TICKS),
        },
    ]
}
