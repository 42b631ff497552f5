//! What there is to choose from, for those who choose.

use crate::Nanos;
use crate::adaptive::Params;

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
    /// `NAME=TIME,…`
    Times(&'static [TimeOption]),
    /// `PATTERN=PRIORITY,…`
    Rules,
}

/// A length of time that a policy can be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeOption {
    pub name: &'static str,
    /// `None`: the program's own switch interval.
    pub default: Option<Nanos>,
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
) -> TimeOption {
    TimeOption { name, default: Some(default), range: (least, MOST), meaning }
}

pub(crate) const ADAPTIVE: &[TimeOption; 7] = &{
    let p = Params::DEFAULT;
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

pub(crate) const TIMEOUT: &[TimeOption; 1] = &[TimeOption {
    name: "interval",
    default: None,
    range: ("1us", MOST),
    meaning: "how long a waiter waits before it asks",
}];

/// The policies, the default one first.
pub const fn catalogue() -> &'static [About] {
    &[
        About {
            name: "adaptive",
            summary: "credit for time spent elsewhere buys immediate preemption (the default)",
            example: "adaptive:slice=2ms",
            takes: Takes::Times(ADAPTIVE),
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
            takes: Takes::Times(TIMEOUT),
        },
    ]
}
