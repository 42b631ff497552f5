//! Does a recorded run follow from its policy? The events of a trace go into a fresh policy, and
//! what it says is compared with what was recorded.
//!
//! This is what holds the drivers together: the policy that was tested in virtual time is the one
//! that ran under the interpreter. It is exact: no clock is read, and nothing is left out.
//!
//! The trace numbers threads by their records, the policy by the driver's numbers, which it gives
//! again when a thread has ended, and which a record of a thread that begins carries (`Greet`).

use std::collections::HashMap;
use std::fmt;

use deconvoy_policy::{
    Action, Actions, AnyPolicy, Event as Told, Nanos, Policy, Slot, Spec, WaiterId,
};

use crate::format::{Event, Greeting, Kind, MAX_LOCKS, OTHERS};
use crate::read::Trace;

/// How much was replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// What policies were told.
    pub events: u64,
    /// What they said, each of it as recorded.
    pub actions: u64,
    /// Arrivals at a lock that was held, or kept for another. Without any, the rest proves nothing.
    pub contended: u64,
}

/// An action as the trace has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    pub kind: Kind,
    /// The thread's record.
    pub thread: u16,
    pub argument: u32,
}

/// Why a trace does not replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Divergence {
    /// No policy ran.
    Stock,
    /// Its name or its options mean nothing to this version.
    UnknownPolicy(String),
    /// Events are missing, or threads had no record of their own.
    NotWhole,
    /// At event `number`, the policy says something else than the trace. `None`: nothing.
    At { number: usize, expected: Option<Said>, got: Option<Said> },
    /// At event `number`, the trace speaks of a lock or a thread that it has not introduced.
    Unknown { number: usize },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |said: &Option<Said>| match said {
            None => "nothing".to_owned(),
            Some(Said { kind, thread, argument }) => {
                format!("{kind:?} for thread {thread} with {argument}")
            }
        };
        match self {
            Divergence::Stock => write!(f, "no policy ran, so there is nothing to replay"),
            Divergence::UnknownPolicy(why) => write!(f, "its policy is not known here: {why}"),
            Divergence::NotWhole => write!(f, "events are missing: only a whole trace replays"),
            Divergence::At { number, expected, got } => {
                let (expected, got) = (said(expected), said(got));
                write!(f, "at event {number}: the policy says {expected}, the trace {got}")
            }
            Divergence::Unknown { number } => {
                write!(f, "event {number} is of a lock or a thread that was never introduced")
            }
        }
    }
}

impl std::error::Error for Divergence {}

/// Replays a trace that was recorded under a policy.
///
/// What a lock's last event made its policy say may be missing in part: that is where the process
/// was killed.
///
/// # Errors
/// Where the trace and the policy part, or why they cannot be compared.
pub fn check(trace: &Trace) -> Result<Replayed, Divergence> {
    if trace.about.stock {
        return Err(Divergence::Stock);
    }
    if !trace.is_whole() || trace.retired > 0 || trace.lost > 0 {
        return Err(Divergence::NotWhole);
    }
    let spec = Spec::parse(&trace.about.policy)
        .map_err(|error| Divergence::UnknownPolicy(error.to_string()))?;
    let mut slots = vec![Slot::default(); numbers(trace)?];
    let mut done = Replayed::default();
    for life in lives(trace) {
        slots.fill(Slot::default());
        let mut replay = Replay {
            start_ns: trace.about.start_ns,
            policy: spec.build(trace.about.driver(), &mut slots),
            actions: Actions::new(),
            confirmed: 0,
            now: Nanos::ZERO,
            who: HashMap::new(),
            records: HashMap::new(),
            done: &mut done,
        };
        for number in life {
            let event = trace.events.get(number).ok_or(Divergence::NotWhole)?;
            replay.event(number, event)?;
        }
    }
    Ok(done)
}

/// How many numbers the driver gave to threads.
fn numbers(trace: &Trace) -> Result<usize, Divergence> {
    let mut most = 0;
    for (number, event) in trace.events.iter().enumerate() {
        if event.kind == Kind::Greet {
            let who = greeted_as(event).0 as usize;
            if who > usize::from(u16::MAX) {
                return Err(Divergence::Unknown { number });
            }
            most = most.max(who + 1);
        }
    }
    Ok(most)
}

/// The numbers of the events of each lock, from its start to the start of the next one under the
/// same number.
fn lives(trace: &Trace) -> Vec<Vec<usize>> {
    let mut ended = Vec::new();
    let mut open: Vec<Vec<usize>> = vec![Vec::new(); MAX_LOCKS];
    for (number, event) in trace.events.iter().enumerate() {
        let Some(life) = open.get_mut(usize::from(event.lock)) else { continue };
        if event.kind == Kind::LockStart {
            ended.push(std::mem::take(life));
        }
        life.push(number);
    }
    ended.extend(open);
    ended
}

/// The number that the policy knows a greeted thread by. Where it was not recorded, the thread's
/// record stands for it: the same, as long as no thread ends.
fn greeted_as(event: &Event) -> WaiterId {
    WaiterId(Greeting::unpack(event.argument).number.unwrap_or(u32::from(event.thread)))
}

/// The distance from `now` to a point that is not before it, as the recorder writes it down.
fn ahead(now: Nanos, at: Nanos) -> u32 {
    u32::try_from(at.since(now).0).unwrap_or(u32::MAX)
}

/// One lock's policy, and what it said last that the trace has not confirmed yet.
struct Replay<'r> {
    start_ns: u64,
    policy: AnyPolicy<'r>,
    actions: Actions,
    confirmed: usize,
    now: Nanos,
    /// The policy's number of each thread's record, and the other way round.
    who: HashMap<u16, WaiterId>,
    records: HashMap<WaiterId, u16>,
    done: &'r mut Replayed,
}

impl Replay<'_> {
    fn event(&mut self, number: usize, event: &Event) -> Result<(), Divergence> {
        let told = match event.kind {
            Kind::Greet => {
                let who = greeted_as(event);
                self.who.insert(event.thread, who);
                self.records.insert(who, event.thread);
                Told::Start { who, priority: Greeting::unpack(event.argument).priority }
            }
            Kind::Made => {
                Told::Made { who: self.who(number, event)?, by: WaiterId(event.argument) }
            }
            Kind::Woken => {
                Told::Woken { who: self.who(number, event)?, by: WaiterId(event.argument) }
            }
            Kind::Interval => {
                Told::Interval { length: Nanos::from_micros(u64::from(event.argument)) }
            }
            Kind::Arrive => Told::Arrive { who: self.who(number, event)? },
            Kind::Acquire => Told::Acquire { who: self.who(number, event)? },
            Kind::Release => {
                Told::Release { who: self.who(number, event)?, asked: event.argument != 0 }
            }
            Kind::Expire => Told::Expire { who: self.who(number, event)? },
            Kind::Leave => Told::Leave { who: self.who(number, event)? },
            Kind::Ask | Kind::Wake | Kind::Recall | Kind::Grant | Kind::Timer | Kind::Linger => {
                return self.compare(number, event);
            }
            // The recorder's own: no policy was told.
            Kind::Start
            | Kind::End
            | Kind::Forced
            | Kind::LockStart
            | Kind::LockEnd
            | Kind::Fork => return Ok(()),
        };
        self.tell(number, event, told)
    }

    fn who(&self, number: usize, event: &Event) -> Result<WaiterId, Divergence> {
        self.who.get(&event.thread).copied().ok_or(Divergence::Unknown { number })
    }

    fn tell(&mut self, number: usize, event: &Event, told: Told) -> Result<(), Divergence> {
        if let expected @ Some(_) = self.expected() {
            return Err(Divergence::At { number, expected, got: None });
        }
        self.now = Nanos(self.start_ns.saturating_add(event.at_ns));
        self.actions.clear();
        self.confirmed = 0;
        self.policy.step(self.now, told, &mut self.actions);
        self.done.events += 1;
        self.done.contended += u64::from(matches!(told, Told::Arrive { .. }));
        Ok(())
    }

    fn compare(&mut self, number: usize, event: &Event) -> Result<(), Divergence> {
        let got = Said { kind: event.kind, thread: event.thread, argument: event.argument };
        let expected = self.expected();
        if expected != Some(got) {
            return Err(Divergence::At { number, expected, got: Some(got) });
        }
        self.confirmed += 1;
        self.done.actions += 1;
        Ok(())
    }

    /// The next thing that the policy said, as the recorder writes it down.
    fn expected(&self) -> Option<Said> {
        let (kind, who, argument) = match *self.actions.as_slice().get(self.confirmed)? {
            Action::Ask { who } => (Kind::Ask, who, 0),
            Action::Wake { who } => (Kind::Wake, who, 0),
            Action::Recall { who } => (Kind::Recall, who, 0),
            Action::Grant { who } => (Kind::Grant, who, 0),
            Action::Timer { who, at } => (Kind::Timer, who, ahead(self.now, at)),
            Action::Linger { who, until } => (Kind::Linger, who, ahead(self.now, until)),
        };
        let thread = self.records.get(&who).copied().unwrap_or(OTHERS);
        Some(Said { kind, thread, argument })
    }
}
