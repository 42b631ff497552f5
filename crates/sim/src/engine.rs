//! The simulation: threads, cores and the lock, from one event to the next.
//!
//! A thread has *work* in front of it, which takes time on a core, and something *to do* when the work
//! is done, which takes none: it looks at the lock, goes to sleep, begins its next step. Each core has
//! one place in the agenda, for when its thread's work is done or the scheduler looks; each thread has
//! one, for when it wakes up. What a thread does step by step is in `steps.rs`, what happens at the lock in
//! `gate.rs`, what the operating system does in `schedule.rs`.

use deconvoy_mix::Mix;
use deconvoy_policy::home::{HomeCore, Next};
use deconvoy_policy::{
    Actions, AnyPolicy, Driver, Event, Nanos, Observer, Policy, Slot, Spec, WaiterId,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::agenda::{Agenda, NEVER};
use crate::cores::{Core, CoreSet};
use crate::costs::Costs;
use crate::latency::Latency;
use crate::outcome::{Group, Outcome, Totals};
use crate::schedule::Waker;
use crate::steps::{Play, plays};
use crate::thread::{On, State, Thread, Todo};

/// When a run begins, in its own time. Not zero: a policy may take that for "never".
pub(crate) const BEGUN: u64 = 1_000_000;

/// What a workload runs on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct World {
    pub cores: u32,
    pub costs: Costs,
    pub seed: u64,
}

/// Whose the lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    Free,
    Kept(u32),
    Held(u32),
}

/// The lock, as the driver sees it.
#[derive(Debug)]
pub(crate) struct Lock {
    pub hold: Hold,
    pub since: u64,
    /// The request that the holder sees at its next look.
    pub request: bool,
    /// When a waiter asked for the present hold.
    pub asked: bool,
    pub last: u32,
    pub switches: u64,
    pub taken: u64,
    /// How many wait at the gate.
    pub waiting: u32,
    /// Those who were made to give the lock up and wait, not polling, until another one has it.
    pub forced: Vec<u32>,
    /// Who was granted the lock when it was given up last.
    pub next: Next,
    /// How often in a row the last one has taken it with nobody else there.
    pub row: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Channel {
    pub messages: u32,
    pub waiting: std::collections::VecDeque<u32>,
}

pub(crate) struct Sim<'s, O> {
    pub costs: Costs,
    pub now: u64,
    pub end: u64,
    pub agenda: Agenda,
    pub cores: Vec<Core>,
    pub idle: CoreSet,
    pub threads: Vec<Thread>,
    pub groups: Vec<Group>,
    pub steps: Vec<Vec<Play>>,
    pub channels: Vec<Channel>,
    pub policy: AnyPolicy<'s>,
    pub forces_switch: bool,
    /// How long a holder runs before it gives the lock up unasked.
    pub quantum: u64,
    pub actions: Actions,
    pub observer: O,
    pub home: HomeCore,
    pub lock: Lock,
    /// The core whose thread's turn it is.
    pub playing: Option<u32>,
    /// Threads that are ready, on all cores.
    pub queued: usize,
    /// The thread whose turn it is has the gate's guard: what it does next it does at once.
    pub has_guard: bool,
    /// Who has it on its way to sleep, and until when.
    pub guarded: (u32, u64),
    /// What the thread whose turn it is owes: what it did to others cost it time.
    pub debt: u64,
    pub random: Pcg64Mcg,
    pub totals: Totals,
    /// Threads that go round so often, and are not done; `None`: there never were any.
    pub left: Option<u32>,
}

/// Runs a workload under a policy to its end; what came of it.
///
/// # Panics
/// A rule of the simulation was broken: a bug, of which the caller tells the seed.
pub fn run(spec: &Spec<'_>, mix: &Mix, world: World, observer: impl Observer + Placed) -> Outcome {
    let mut slots = vec![Slot::default(); mix.count() as usize];
    let mut sim = Sim::new(spec, &mut slots, mix, world, observer);
    sim.run();
    sim.finish()
}

/// An observer that wants to know on which core what it sees happens, and when all of it ended.
pub trait Placed {
    fn on_core(&mut self, _core: u32) {}

    fn ended(&mut self, _now: Nanos) {}
}

impl Placed for () {}

impl<'s, O: Observer + Placed> Sim<'s, O> {
    fn new(
        spec: &Spec<'_>,
        slots: &'s mut [Slot],
        mix: &Mix,
        world: World,
        observer: O,
    ) -> Sim<'s, O> {
        let cores = world.cores;
        let driver = Driver { cores, counts_instructions: true };
        let policy = spec.build(driver, slots);
        let instruction_ns = world.costs.instruction_ns;
        let quantum = spec
            .instructions()
            .map_or(NEVER, |count| (f64::from(count) * instruction_ns).max(1.0) as u64);
        let count = mix.count();
        let mut sim = Sim {
            costs: world.costs,
            now: BEGUN,
            end: mix.duration.0.saturating_add(BEGUN),
            agenda: Agenda::new((cores + count) as usize),
            cores: (0..cores).map(|_| Core::new()).collect(),
            idle: CoreSet::first(cores),
            threads: Vec::with_capacity(count as usize),
            groups: mix.threads.iter().map(Group::new).collect(),
            steps: plays(mix),
            channels: vec![Channel::default(); mix.channels().len()],
            forces_switch: policy.forces_switch(),
            policy,
            quantum,
            actions: Actions::new(),
            observer,
            home: HomeCore::new(cores > 1),
            lock: Lock {
                hold: Hold::Free,
                since: 0,
                request: false,
                asked: false,
                last: u32::MAX,
                switches: 0,
                taken: 0,
                waiting: 0,
                forced: Vec::new(),
                next: Next::Sleeps,
                row: 0,
            },
            playing: None,
            queued: 0,
            has_guard: false,
            guarded: (0, 0),
            debt: 0,
            random: Pcg64Mcg::seed_from_u64(world.seed),
            totals: Totals::default(),
            left: None,
        };
        for (number, group) in mix.threads.iter().enumerate() {
            for place in 0..group.count {
                sim.add(spec, number as u32, group, place);
            }
        }
        sim
    }

    fn add(&mut self, spec: &Spec<'_>, group: u32, about: &deconvoy_mix::Group, place: u32) {
        let number = self.threads.len() as u32;
        let mut thread = Thread::new(group, about.times.unwrap_or(u32::MAX));
        thread.core = number % self.cores.len() as u32;
        self.threads.push(thread);
        if about.times.is_some() {
            self.left = Some(self.left.unwrap_or(0) + 1);
        }
        if about.gil {
            // A rule of the policy's goes before what the workload says.
            let ruled = spec.priority(about.thread_name(place).as_bytes(), number);
            let priority = if ruled == 0 { about.priority } else { ruled };
            let event = Event::Start { who: WaiterId(number), priority };
            self.step(event, number);
        }
        // One after the other, as a program starts its threads.
        let apart = self.draw(|costs| costs.call_ns) + self.draw(|costs| costs.wake_ns);
        let after = about.after.0.saturating_mul(u64::from(place) + 1) + apart * u64::from(number);
        let at = self.now + after;
        self.agenda.set(self.place_of_thread(number), at);
    }

    /// The place of a thread in the agenda; those of the cores come first.
    pub(crate) fn place_of_thread(&self, thread: u32) -> u32 {
        self.cores.len() as u32 + thread
    }

    /// What something takes this time.
    pub(crate) fn draw(&mut self, of: impl Fn(&Costs) -> Latency) -> u64 {
        of(&self.costs).draw(&mut self.random)
    }

    pub(crate) fn thread(&mut self, thread: u32) -> &mut Thread {
        &mut self.threads[thread as usize]
    }

    fn run(&mut self) {
        let cores = self.cores.len() as u32;
        while let Some((at, place)) = self.agenda.first() {
            if at >= self.end {
                break;
            }
            assert!(at >= self.now, "time goes back");
            self.now = at;
            self.totals.events += 1;
            if place < cores {
                self.core_is_due(place);
            } else {
                self.agenda.clear(place);
                self.wakes_by_itself(place - cores);
            }
            self.check();
            if self.left == Some(0) {
                return;
            }
        }
        self.now = self.now.max(self.end);
    }

    /// The time that a thread set itself has come.
    fn wakes_by_itself(&mut self, thread: u32) {
        match self.threads[thread as usize].state {
            State::Blocked(On::Time | On::Gate | On::Switch { polls: true }) => {
                self.interrupts(self.threads[thread as usize].core);
                self.unblock(thread, Waker::Nobody);
            }
            other => panic!("thread {thread} wakes up by itself, and is {other:?}"),
        }
    }

    /// The current thread of a core has done its work: what it does now. Goes on until there is work
    /// again, or it has left the core.
    pub(crate) fn play(&mut self, thread: u32) {
        loop {
            debug_assert_eq!(self.threads[thread as usize].state, State::Running);
            if self.waits_for_guard(thread) {
                return;
            }
            match self.threads[thread as usize].todo {
                Todo::Begin => self.begin_step(thread),
                Todo::Acquire => self.acquire(thread),
                Todo::Compute => self.computed(thread),
                Todo::Finish => self.next_step(thread),
                Todo::Call => self.leave_for_call(thread),
                Todo::Called => self.called(thread),
                Todo::Look => self.look(thread),
                Todo::Park => self.park(thread),
                Todo::Spin => self.stops_spinning(thread),
                Todo::Yield { calls } => self.lets_another(thread, calls),
                Todo::YieldSpin { calls } => self.stops_yielding(thread, calls),
            }
            if std::mem::take(&mut self.has_guard) {
                continue;
            }
            let debt = std::mem::take(&mut self.debt);
            let mine = self.thread(thread);
            if mine.state != State::Running {
                return;
            }
            mine.work = mine.work.saturating_add(debt);
            let work = mine.work;
            if work > 0 {
                if mine.todo == Todo::Park && !mine.falls_asleep {
                    self.guarded = (thread, self.now + work);
                }
                return;
            }
        }
    }

    /// Whether the thread is about to do what needs the guard, while another one has it.
    fn waits_for_guard(&mut self, thread: u32) -> bool {
        let (owner, until) = self.guarded;
        if owner == thread || until <= self.now {
            return false;
        }
        let todo = self.threads[thread as usize].todo;
        let needs = match todo {
            Todo::Acquire | Todo::Call | Todo::Look => true,
            Todo::Compute => self.lock.request || self.threads[thread as usize].quantum == 0,
            _ => false,
        };
        if needs {
            self.will(thread, until - self.now + self.costs.spin_ns, todo);
        }
        needs
    }

    /// The thread has so much to run before it does the next thing.
    pub(crate) fn will(&mut self, thread: u32, work: u64, todo: Todo) {
        let thread = self.thread(thread);
        thread.work = work;
        thread.todo = todo;
    }

    pub(crate) fn holds(&self, thread: u32) -> bool {
        self.lock.hold == Hold::Held(thread)
    }

    fn finish(mut self) -> Outcome {
        self.check_all();
        self.observer.ended(Nanos(self.now));
        Outcome::of(&mut self)
    }
}
