//! One simulated thread: where it is, and what it does next.

use deconvoy_policy::home::Keep;

use crate::agenda::NEVER;

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Off the processor, until the agenda or another thread brings it back.
    Blocked(On),
    /// In the queue of its core.
    Ready,
    Running,
    Ended,
}

/// What a blocked thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// A point in time.
    Time,
    /// A message, in its place of the channels.
    Channel(u32),
    /// The lock: asleep at the gate.
    Gate,
    /// That another one has the lock: it was made to give it up. `polls`: it looks for itself.
    Switch { polls: bool },
}

/// What a thread does when the work in front of it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Todo {
    /// Begins the step that it has come to.
    Begin,
    /// Looks whether the lock is free, and takes it or waits.
    Acquire,
    /// Has run what it was to compute, or is to give way.
    Compute,
    /// Has run what needs no further look: goes on to the next step.
    Finish,
    /// Gives the lock up to make a call.
    Call,
    /// Has made the call: what comes of it.
    Called,
    /// Looks at the lock: it was woken, or its timer has run out.
    Look,
    /// Waits at the gate, asleep or awake, as it was told last.
    Park,
    /// Stays awake at the gate.
    Spin,
    /// Was made to give the lock up, and lets another one have it: then a call, or the lock again.
    Yield { calls: bool },
    /// Stays awake for that.
    YieldSpin { calls: bool },
}

#[derive(Clone, Debug)]
pub struct Thread {
    pub group: u32,
    pub step: u32,
    /// Rounds of its loop that are left; `u32::MAX`: no end.
    pub rounds: u32,
    pub state: State,
    pub todo: Todo,
    /// What it has to run before that, in nanoseconds of a core; `NEVER`: without end.
    pub work: u64,
    /// What is left of its step's computing.
    pub compute: u64,
    /// What is left until it gives the lock up unasked.
    pub quantum: u64,
    pub core: u32,
    /// What it has run, as the scheduler counts.
    pub runtime: u64,
    pub keep: Keep,
    /// A waiter at the gate, asleep or awake.
    pub inside: bool,
    pub woken: bool,
    /// It has made the call that puts it to sleep, and the system has not yet looked whether it may.
    pub falls_asleep: bool,
    pub timer: u64,
    pub floor: u64,
    pub linger: u64,
    /// Until when it sleeps.
    pub sleeps_until: u64,
    /// Switches of the lock when its wait began.
    pub switches: u64,
    /// When it began to wait for the lock; `NEVER`: it does not.
    pub waits_since: u64,
    /// Acquisitions by all when it was made to give the lock up.
    pub taken: u64,
    /// How long it sleeps between two looks whether the lock was taken.
    pub nap: u64,
    /// When it began its present message; `NEVER`: none.
    pub sent: u64,
    /// When it became ready, for the longest wait for a core.
    pub ready_since: u64,
    pub moved_at: u64,
    pub held: u64,
    pub waited: u64,
    pub ran: u64,
    pub acquired: u64,
    pub done: u64,
    pub longest_wait: u64,
}

impl Thread {
    pub fn new(group: u32, rounds: u32) -> Thread {
        Thread {
            group,
            step: 0,
            rounds,
            state: State::Blocked(On::Time),
            todo: Todo::Begin,
            work: 0,
            compute: 0,
            quantum: NEVER,
            core: 0,
            runtime: 0,
            keep: Keep::Anywhere,
            inside: false,
            woken: false,
            falls_asleep: false,
            timer: NEVER,
            floor: NEVER,
            linger: 0,
            sleeps_until: 0,
            switches: 0,
            waits_since: NEVER,
            taken: 0,
            nap: 0,
            sent: NEVER,
            ready_since: 0,
            moved_at: NEVER,
            held: 0,
            waited: 0,
            ran: 0,
            acquired: 0,
            done: 0,
            longest_wait: 0,
        }
    }
}
