//! A recorded policy replays to the letter, and a recording that was tampered with does not.

mod build;

use build::{START_NS, Tape, US, stock, under};
use deconvoy_policy::{
    Action, Actions, AnyPolicy, Event, MAX_THREADS, Nanos, Policy, Slot, Spec, WaiterId,
};
use deconvoy_trace::format::{Event as Written, Greeting, Kind};
use deconvoy_trace::read::Trace;
use deconvoy_trace::replay::{Divergence, check};
use proptest::prelude::*;

const THREADS: usize = 6;

/// What the tape says of its driver.
const DRIVER: deconvoy_policy::Driver =
    deconvoy_policy::Driver { cores: 2, counts_instructions: false };

/// Tells a policy what happens, and writes both sides down as the preloaded library does.
struct Driver<'p> {
    tape: Tape,
    policy: AnyPolicy<'p>,
    /// The trace's number of each thread.
    records: Vec<u16>,
    greeted: Vec<bool>,
    holder: Option<usize>,
    asked: Option<u64>,
    told: u64,
    said: u64,
}

impl Driver<'_> {
    fn tell(&mut self, kind: Kind, who: usize) {
        let (now, record) = (self.tape.now, self.records[who]);
        let waiter = WaiterId(who as u32);
        if !self.greeted[who] {
            self.greeted[who] = true;
            let greeting = Greeting { priority: who as i8 - 3, number: Some(who as u32) };
            self.tape.recorder().write(now, Kind::Greet, record, 0, greeting.pack());
            self.step(Event::Start { who: waiter, priority: greeting.priority });
            if who > 0 && self.greeted[who - 1] {
                let by = WaiterId(who as u32 - 1);
                self.tape.recorder().write(now, Kind::Made, record, 0, by.0);
                self.step(Event::Made { who: waiter, by });
            }
        }
        // Now and then it comes from a wait that another thread ended.
        if matches!(kind, Kind::Arrive | Kind::Acquire) && now % 3 == 0 {
            let by = WaiterId((who as u32 + 1) % self.records.len() as u32);
            self.tape.recorder().write(now, Kind::Woken, record, 0, by.0);
            self.step(Event::Woken { who: waiter, by });
        }
        let asked = self.asked;
        let event = match kind {
            Kind::Arrive => Event::Arrive { who: waiter },
            Kind::Acquire => Event::Acquire { who: waiter },
            Kind::Release => Event::Release { who: waiter, asked: asked.is_some() },
            Kind::Expire => Event::Expire { who: waiter },
            _ => Event::Leave { who: waiter },
        };
        match kind {
            Kind::Arrive => self.tape.recorder().arrive(now, record, 0),
            Kind::Acquire => self.tape.recorder().acquire(now, record, 0, None),
            Kind::Release => self.tape.recorder().release(now, record, 0, asked),
            _ => self.tape.recorder().write(now, kind, record, 0, 0),
        }
        self.step(event);
    }

    fn step(&mut self, event: Event) {
        let now = Nanos(self.tape.now);
        let mut actions = Actions::new();
        self.policy.step(now, event, &mut actions);
        self.told += 1;
        for &action in actions.as_slice() {
            let ahead = |at: Nanos| u32::try_from(at.since(now).0).unwrap_or(u32::MAX);
            let (kind, who, argument) = match action {
                Action::Ask { who } => {
                    self.asked = self.asked.or(Some(now.0));
                    self.tape.recorder().ask(now.0, self.records[who.0 as usize], 0);
                    self.said += 1;
                    continue;
                }
                Action::Wake { who } => (Kind::Wake, who, 0),
                Action::Recall { who } => (Kind::Recall, who, 0),
                Action::Grant { who } => (Kind::Grant, who, 0),
                Action::Timer { who, at } => (Kind::Timer, who, ahead(at)),
                Action::Linger { who, until } => (Kind::Linger, who, ahead(until)),
            };
            let record = self.records[who.0 as usize];
            self.tape.recorder().write(now.0, kind, record, 0, argument);
            self.said += 1;
        }
    }

    /// Thread `who` does what it can: it takes the free lock, gives up its own, or waits.
    fn act(&mut self, who: usize) {
        match self.holder {
            None => {
                self.tell(Kind::Acquire, who);
                (self.holder, self.asked) = (Some(who), None);
            }
            Some(holder) if holder == who => {
                self.tell(Kind::Release, who);
                self.holder = None;
            }
            Some(_) => self.tell(Kind::Arrive, who),
        }
    }

    /// Thread `who` ends, and a new one has its number.
    fn end(&mut self, who: usize) {
        if self.holder == Some(who) {
            self.act(who);
        }
        self.tell(Kind::Leave, who);
        self.tape.recorder().end_thread(self.tape.now, self.records[who]);
        self.records[who] = self.tape.thread("another");
        self.greeted[who] = false;
    }
}

/// What happens: to whom, and how long after the last.
type Step = (u8, usize, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pass = prop_oneof![0..100 * US, 0..8_000 * US];
    prop::collection::vec((0u8..20, 0..THREADS, pass), 1..400)
}

/// The trace, and how much was told and said.
fn record(policy: &'static str, steps: &[Step]) -> (Trace, u64, u64) {
    let mut slots = vec![Slot::default(); MAX_THREADS];
    let spec = Spec::parse(policy).unwrap();
    let tape = Tape::new(under(policy), 1 << 14);
    let start = tape.recorder();
    start.write(START_NS, Kind::LockStart, 0, 0, 0);
    let mut driver = Driver {
        policy: spec.build(DRIVER, &mut slots),
        records: (0..THREADS).map(|_| tape.thread("one")).collect(),
        tape,
        greeted: vec![false; THREADS],
        holder: None,
        asked: None,
        told: 0,
        said: 0,
    };
    for &(what, who, pass) in steps {
        driver.tape.pass(pass);
        match what {
            0 => driver.end(who),
            1 => {
                let length = Nanos::from_micros(pass / US + 1);
                driver.tape.recorder().interval(driver.tape.now, 0, 0, length.0);
                driver.step(Event::Interval { length });
            }
            2..5 => driver.tell(Kind::Expire, who),
            _ => driver.act(who),
        }
    }
    (driver.tape.trace(), driver.told, driver.said)
}

fn diverges_at(trace: &Trace) -> Option<usize> {
    match check(trace) {
        Err(Divergence::At { number, .. }) => Some(number),
        _ => None,
    }
}

const POLICIES: [&str; 3] = ["adaptive", "timeout:interval=2ms", "priority:one=3"];

proptest! {
    #[test]
    fn every_policy_replays(steps in steps(), policy in 0..POLICIES.len()) {
        let (trace, told, said) = record(POLICIES[policy], &steps);
        let replayed = check(&trace);
        prop_assert!(replayed.is_ok(), "{}", replayed.unwrap_err());
        let replayed = replayed.unwrap();
        prop_assert_eq!((replayed.events, replayed.actions), (told, said));
    }

    #[test]
    fn what_was_tampered_with_does_not(steps in steps(), policy in 0..POLICIES.len(), at in any::<prop::sample::Index>()) {
        let (mut trace, _, said) = record(POLICIES[policy], &steps);
        prop_assume!(said > 0);
        let is_said = |event: &Written| {
            let policys = [Kind::Ask, Kind::Wake, Kind::Recall, Kind::Grant, Kind::Timer, Kind::Linger];
            policys.contains(&event.kind)
        };
        let places: Vec<usize> =
            (0..trace.events.len()).filter(|&place| is_said(&trace.events[place])).collect();
        let place = *at.get(&places);
        trace.events[place].argument ^= 1;
        prop_assert_eq!(diverges_at(&trace), Some(place));
        trace.events[place].argument ^= 1;
        trace.events[place].thread ^= 1;
        prop_assert_eq!(diverges_at(&trace), Some(place));
        // Missing altogether, which shows with the next event that is told.
        trace.events[place].thread ^= 1;
        let later_told = trace.events[place + 1..].iter().any(|event| {
            !is_said(event) && !matches!(event.kind, Kind::Start | Kind::End)
        });
        trace.events.remove(place);
        prop_assert_eq!(check(&trace).is_err(), later_told || places.last() != Some(&place));
    }
}

#[test]
fn what_cannot_replay_says_why() {
    let stocks = Tape::new(stock(), 256).trace();
    assert_eq!(check(&stocks), Err(Divergence::Stock));
    let unknown = Tape::new(under("clairvoyant"), 256).trace();
    let said = check(&unknown).unwrap_err().to_string();
    assert!(said.starts_with("its policy is not known here: no policy \"clairvoyant\""), "{said}");
    let mut wrapped = Tape::new(under("adaptive"), 256);
    let thread = wrapped.thread("one");
    for _ in 0..200 {
        wrapped.acquire(thread).pass(US).release(thread);
    }
    assert_eq!(check(&wrapped.trace()), Err(Divergence::NotWhole));
}
