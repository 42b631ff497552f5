//! A model of CPython's lock in virtual time: threads that compute, give the lock up, stay away
//! and come back; wake-ups that take their time; barging. Drives a policy as a driver would and
//! checks what must hold at every step.

use std::collections::{BTreeMap, BinaryHeap};

use deconvoy_policy::{
    Action, Actions, AnyPolicy, Driver, Event, Nanos, Policy, Slot, Spec, WaiterId,
};

/// What a thread does over and over: hold the lock, then be elsewhere. `hold_ns` of `u64::MAX`
/// computes without end.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub hold_ns: u64,
    pub away_ns: u64,
    pub priority: i8,
}

pub const SPIN: Program = Program { hold_ns: u64::MAX, away_ns: 0, priority: 0 };

#[derive(Clone, Copy, Debug)]
pub struct World {
    pub cores: u32,
    /// The longest that a wake-up takes.
    pub wake_ns: u64,
    /// The longest from a drop request to the release.
    pub check_ns: u64,
    pub seed: u64,
    pub end_ns: u64,
    /// How long an instruction takes; `None`: nobody counts them.
    pub instruction_ns: Option<u64>,
    /// Half of all who come say that one of the threads, any, has woken them.
    pub wake_each_other: bool,
}

impl World {
    pub fn driver(&self) -> Driver {
        let counts_instructions = self.instruction_ns.is_some();
        Driver { cores: self.cores, counts_instructions }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Away,
    Waiting {
        since: u64,
    },
    /// Told to try; looks at the lock soon.
    Woken {
        since: u64,
    },
    Holding {
        since: u64,
    },
    /// Released on request: may not go on before another thread has had the lock.
    Forced {
        again: bool,
    },
}

#[derive(Debug)]
struct Thread {
    program: Program,
    state: State,
    left_ns: u64,
    timer: Option<u64>,
    served: Served,
}

/// What became of a thread.
#[derive(Clone, Debug, Default)]
pub struct Served {
    pub held_ns: u64,
    pub turns: u64,
    pub waits_ns: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    WantsLock,
    Finishes { hold: u64 },
    Checks { hold: u64 },
    Looks,
    Timer { at: u64 },
}

/// Everything that a policy was told and said.
pub type Log = Vec<(Nanos, Event, Vec<Action>)>;

pub struct Model<'a> {
    world: World,
    policy: AnyPolicy<'a>,
    /// A holder gives the lock up so long after it took it.
    tick_ns: Option<u64>,
    now: u64,
    threads: Vec<Thread>,
    holder: Option<usize>,
    /// Counts holds, so that what was due for an earlier one is stale.
    hold: u64,
    asked: bool,
    /// Whom the free lock is kept for.
    kept: Option<usize>,
    queue: BinaryHeap<std::cmp::Reverse<(u64, u64, usize, Due)>>,
    sequence: u64,
    random: u64,
    pub log: Log,
    pub takes: u64,
    pub switches: u64,
    last: Option<usize>,
    pub asks: u64,
}

impl<'a> Model<'a> {
    pub fn new(spec: &Spec<'_>, slots: &'a mut [Slot], world: World, programs: &[Program]) -> Self {
        let mut model = Model {
            world,
            tick_ns: world.instruction_ns.zip(spec.instructions()).map(|(ns, n)| ns * u64::from(n)),
            policy: spec.build(world.driver(), slots),
            now: 1_000_000,
            threads: Vec::new(),
            holder: None,
            hold: 0,
            asked: false,
            kept: None,
            queue: BinaryHeap::new(),
            sequence: 0,
            random: world.seed | 1,
            log: Vec::new(),
            takes: 0,
            switches: 0,
            last: None,
            asks: 0,
        };
        for (number, &program) in programs.iter().enumerate() {
            model.threads.push(Thread {
                program,
                state: State::Away,
                left_ns: program.hold_ns,
                timer: None,
                served: Served::default(),
            });
            let who = WaiterId(number as u32);
            model.step(Event::Start { who, priority: program.priority }, number);
            let jitter = model.up_to(1_000_000);
            model.due(jitter, number, Due::WantsLock);
        }
        model
    }

    fn up_to(&mut self, most: u64) -> u64 {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if most == 0 { 0 } else { self.random % (most + 1) }
    }

    fn due(&mut self, after: u64, thread: usize, due: Due) {
        self.sequence += 1;
        let at = self.now.saturating_add(after);
        self.queue.push(std::cmp::Reverse((at, self.sequence, thread, due)));
    }

    /// Steps the policy and does what it says; whether `me` asks.
    fn step(&mut self, event: Event, me: usize) {
        let now = Nanos(self.now);
        let mut actions = Actions::new();
        self.policy.step(now, event, &mut actions);
        let actions = actions.as_slice().to_vec();
        assert!(actions.len() < Actions::CAPACITY, "a full list may have lost one");
        self.log.push((now, event, actions.clone()));
        for action in actions {
            match action {
                Action::Ask { who } => {
                    assert_eq!(who.0 as usize, me, "a waiter asks for itself");
                    assert!(self.holder.is_some(), "there is nobody to ask");
                    self.asks += 1;
                    if !self.asked {
                        self.asked = true;
                        let holder = self.holder.unwrap();
                        let hold = self.hold;
                        let answer = self.up_to(self.world.check_ns);
                        self.due(answer, holder, Due::Checks { hold });
                    }
                }
                Action::Wake { who } | Action::Grant { who } => {
                    let who = who.0 as usize;
                    if matches!(action, Action::Grant { .. }) {
                        assert!(self.holder.is_none(), "a lock that is held is not granted");
                        self.kept = Some(who);
                    }
                    if let State::Waiting { since } = self.threads[who].state {
                        self.threads[who].state = State::Woken { since };
                        let latency = self.up_to(self.world.wake_ns);
                        self.due(latency, who, Due::Looks);
                    } else {
                        assert!(
                            matches!(self.threads[who].state, State::Woken { .. }),
                            "{who} was woken but {:?}",
                            self.threads[who].state
                        );
                    }
                }
                Action::Recall { who } => {
                    let thread = &mut self.threads[who.0 as usize];
                    if let State::Woken { since } = thread.state {
                        thread.state = State::Waiting { since };
                    }
                }
                Action::Timer { who, at } => {
                    let who = who.0 as usize;
                    let late = self.up_to(self.world.wake_ns);
                    self.threads[who].timer = Some(at.0);
                    self.due(at.0.saturating_sub(self.now) + late, who, Due::Timer { at: at.0 });
                }
                Action::Linger { .. } => {}
            }
        }
    }

    fn wants(&mut self, thread: usize) {
        if self.holder.is_none() && self.kept.is_none_or(|kept| kept == thread) {
            self.take(thread);
        } else {
            let since = match self.threads[thread].state {
                State::Woken { since } | State::Waiting { since } => since,
                _ => self.now,
            };
            let is_new = !matches!(self.threads[thread].state, State::Waiting { .. });
            if self.world.wake_each_other && is_new && self.up_to(1) == 0 {
                let by = WaiterId(self.up_to(self.threads.len() as u64 - 1) as u32);
                self.step(Event::Woken { who: WaiterId(thread as u32), by }, thread);
            }
            self.threads[thread].state = State::Waiting { since };
            self.threads[thread].timer = None;
            self.step(Event::Arrive { who: WaiterId(thread as u32) }, thread);
        }
    }

    fn take(&mut self, thread: usize) {
        assert!(self.holder.is_none(), "two holders");
        if let State::Woken { since } | State::Waiting { since } = self.threads[thread].state {
            let waited = self.now - since;
            self.threads[thread].served.waits_ns.push(waited);
        }
        self.threads[thread].timer = None;
        self.threads[thread].state = State::Holding { since: self.now };
        self.threads[thread].served.turns += 1;
        self.holder = Some(thread);
        self.kept = None;
        self.hold += 1;
        self.asked = false;
        self.takes += 1;
        self.switches += u64::from(self.last.replace(thread) != Some(thread));
        let hold = self.hold;
        let left = self.threads[thread].left_ns;
        if left != u64::MAX {
            self.due(left, thread, Due::Finishes { hold });
        }
        if let Some(tick_ns) = self.tick_ns.filter(|&tick_ns| tick_ns < left) {
            self.due(tick_ns, thread, Due::Checks { hold });
        }
        self.step(Event::Acquire { who: WaiterId(thread as u32) }, thread);
        for other in 0..self.threads.len() {
            if let State::Forced { again } = self.threads[other].state
                && other != thread
            {
                self.go_on(other, again);
            }
        }
    }

    fn go_on(&mut self, thread: usize, again: bool) {
        self.threads[thread].state = State::Away;
        let program = self.threads[thread].program;
        let after = if again { 0 } else { program.away_ns };
        if !again {
            self.threads[thread].left_ns = program.hold_ns;
        }
        self.due(after, thread, Due::WantsLock);
    }

    /// `again`: it was made to, and wants the lock back.
    fn release(&mut self, thread: usize, again: bool) {
        let State::Holding { since } = self.threads[thread].state else {
            panic!("{thread} releases what it does not hold")
        };
        let held = self.now - since;
        let record = &mut self.threads[thread];
        record.served.held_ns += held;
        if record.left_ns != u64::MAX {
            record.left_ns -= held.min(record.left_ns);
        }
        let asked = self.asked;
        self.holder = None;
        self.threads[thread].state = State::Forced { again };
        self.step(Event::Release { who: WaiterId(thread as u32), asked }, thread);
        if !asked || !self.policy.forces_switch() {
            self.go_on(thread, again);
        }
    }

    pub fn run(&mut self) {
        while let Some(std::cmp::Reverse((at, _, thread, due))) = self.queue.pop() {
            if at > self.world.end_ns {
                break;
            }
            self.now = at.max(self.now);
            match due {
                Due::WantsLock => self.wants(thread),
                Due::Looks => {
                    if let State::Woken { since } = self.threads[thread].state {
                        if self.kept.is_none_or(|kept| kept == thread) {
                            self.wants(thread);
                        } else {
                            // It was granted to another meanwhile: it waits on where it is.
                            self.threads[thread].state = State::Waiting { since };
                        }
                    }
                }
                Due::Finishes { hold } if self.hold == hold && self.holder == Some(thread) => {
                    self.release(thread, false);
                }
                Due::Checks { hold } if self.hold == hold && self.holder == Some(thread) => {
                    self.release(thread, true);
                }
                Due::Timer { at } => {
                    let waits = matches!(self.threads[thread].state, State::Waiting { .. });
                    if waits && self.threads[thread].timer == Some(at) {
                        self.threads[thread].timer = None;
                        self.step(Event::Expire { who: WaiterId(thread as u32) }, thread);
                    }
                }
                Due::Finishes { .. } | Due::Checks { .. } => {}
            }
            self.check();
        }
    }

    /// A free lock with waiters has one on its way: woken, or with a timer.
    fn check(&self) {
        if self.holder.is_some() {
            return;
        }
        let waits = |thread: &Thread| matches!(thread.state, State::Waiting { .. });
        let moves = |thread: &Thread| match thread.state {
            State::Woken { .. } | State::Away => true,
            State::Waiting { .. } => thread.timer.is_some(),
            _ => false,
        };
        assert!(
            !self.threads.iter().any(waits) || self.threads.iter().any(moves),
            "the lock is free, threads wait, and nothing moves: {:?}",
            self.threads
        );
    }

    /// What became of each thread, the waits that have not ended included.
    pub fn served(&self) -> BTreeMap<usize, Served> {
        self.threads
            .iter()
            .map(|thread| {
                let mut served = thread.served.clone();
                match thread.state {
                    State::Waiting { since } | State::Woken { since } => {
                        served.waits_ns.push(self.world.end_ns.saturating_sub(since));
                    }
                    State::Holding { since } => {
                        served.held_ns += self.world.end_ns.saturating_sub(since);
                    }
                    _ => {}
                }
                served
            })
            .enumerate()
            .collect()
    }

    pub fn bound(&self) -> Option<Nanos> {
        self.policy.bound(self.threads.len() as u32, Nanos(self.world.check_ns))
    }
}
