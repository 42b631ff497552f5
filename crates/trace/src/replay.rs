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
    Action, Actions, AnyPolicy, Event as Told, MAX_THREADS, Nanos, Policy, Slot, Spec, WaiterId,
};

use crate::format::{Event, Greeting, Kind, OTHERS};
use crate::read::Trace;

/// How much was replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// What policies were told.
    pub events: u64,
    /// What they said, each of it as recorded.
    pub actions: u64,
    /// Arrivals at a lock that was held. Without any, the rest proves nothing.
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

/// One lock's policy, and what it said last that the trace has not confirmed yet.
struct Lock {
    policy: AnyPolicy<'static>,
    actions: Actions,
    confirmed: usize,
    now: Nanos,
    held: bool,
}

impl Lock {
    fn pending(&self) -> Option<Action> {
        self.actions.as_slice().get(self.confirmed).copied()
    }
}

struct Replay<'t> {
    trace: &'t Trace,
    spec: Spec<'t>,
    locks: HashMap<u8, Lock>,
    /// The driver's number of each thread, and the other way round.
    who: HashMap<u16, WaiterId>,
    records: HashMap<WaiterId, u16>,
    done: Replayed,
}

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
    let mut replay = Replay {
        trace,
        spec,
        locks: HashMap::new(),
        who: HashMap::new(),
        records: HashMap::new(),
        done: Replayed::default(),
    };
    for (number, event) in trace.events.iter().enumerate() {
        replay.event(number, event)?;
    }
    Ok(replay.done)
}

/// The distance from `now` to a point that is not before it, as the recorder writes it down.
fn ahead(now: Nanos, at: Nanos) -> u32 {
    u32::try_from(at.since(now).0).unwrap_or(u32::MAX)
}

impl Replay<'_> {
    fn event(&mut self, number: usize, event: &Event) -> Result<(), Divergence> {
        match event.kind {
            Kind::LockStart => {
                let lock = self.fresh();
                self.locks.insert(event.lock, lock);
                Ok(())
            }
            Kind::Greet => self.greet(number, event),
            Kind::Interval => {
                let length = Nanos::from_micros(u64::from(event.argument));
                self.tell(number, event, Told::Interval { length })
            }
            Kind::Arrive | Kind::Acquire | Kind::Release | Kind::Expire | Kind::Leave => {
                let who = self.who(number, event.thread)?;
                let told = match event.kind {
                    Kind::Arrive => Told::Arrive { who },
                    Kind::Acquire => Told::Acquire { who },
                    Kind::Release => Told::Release { who, asked: event.argument != 0 },
                    Kind::Expire => Told::Expire { who },
                    _ => Told::Leave { who },
                };
                self.tell(number, event, told)
            }
            Kind::Ask | Kind::Wake | Kind::Timer | Kind::Linger => self.compare(number, event),
            // Of the recorder's own: no policy was told.
            Kind::Start | Kind::End | Kind::Forced | Kind::LockEnd | Kind::Fork => Ok(()),
        }
    }

    fn fresh(&self) -> Lock {
        // A trace has at most as many locks as a byte has values, and most have one: their
        // threads' records may as well stay until the process ends.
        let slots = vec![Slot::default(); MAX_THREADS].leak();
        Lock {
            policy: self.spec.build(self.trace.about.cores, slots),
            actions: Actions::new(),
            confirmed: 0,
            now: Nanos::ZERO,
            held: false,
        }
    }

    fn who(&self, number: usize, thread: u16) -> Result<WaiterId, Divergence> {
        self.who.get(&thread).copied().ok_or(Divergence::Unknown { number })
    }

    fn greet(&mut self, number: usize, event: &Event) -> Result<(), Divergence> {
        let Greeting { priority, number: who } = Greeting::unpack(event.argument);
        let who = WaiterId(who);
        if event.thread == OTHERS {
            return Err(Divergence::NotWhole);
        }
        self.who.insert(event.thread, who);
        self.records.insert(who, event.thread);
        self.tell(number, event, Told::Start { who, priority })
    }

    fn tell(&mut self, number: usize, event: &Event, told: Told) -> Result<(), Divergence> {
        let Some(lock) = self.locks.get_mut(&event.lock) else {
            return Err(Divergence::Unknown { number });
        };
        if let Some(action) = lock.pending() {
            let expected = Some(said(&self.records, lock.now, action));
            return Err(Divergence::At { number, expected, got: None });
        }
        lock.now = Nanos(self.trace.about.start_ns.saturating_add(event.at_ns));
        lock.actions.clear();
        lock.confirmed = 0;
        lock.policy.step(lock.now, told, &mut lock.actions);
        self.done.events += 1;
        match told {
            Told::Arrive { .. } if lock.held => self.done.contended += 1,
            Told::Acquire { .. } => lock.held = true,
            Told::Release { .. } => lock.held = false,
            _ => {}
        }
        Ok(())
    }

    fn compare(&mut self, number: usize, event: &Event) -> Result<(), Divergence> {
        let Some(lock) = self.locks.get_mut(&event.lock) else {
            return Err(Divergence::Unknown { number });
        };
        let got = Said { kind: event.kind, thread: event.thread, argument: event.argument };
        let expected = lock.pending().map(|action| said(&self.records, lock.now, action));
        if expected != Some(got) {
            return Err(Divergence::At { number, expected, got: Some(got) });
        }
        lock.confirmed += 1;
        self.done.actions += 1;
        Ok(())
    }
}

/// What the recorder makes of an action.
fn said(records: &HashMap<WaiterId, u16>, now: Nanos, action: Action) -> Said {
    let (kind, who, argument) = match action {
        Action::Ask { who } => (Kind::Ask, who, 0),
        Action::Wake { who } => (Kind::Wake, who, 0),
        Action::Timer { who, at } => (Kind::Timer, who, ahead(now, at)),
        Action::Linger { who, until } => (Kind::Linger, who, ahead(now, until)),
    };
    Said { kind, thread: records.get(&who).copied().unwrap_or(OTHERS), argument }
}
