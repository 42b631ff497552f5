//! What the operations of a machine take, and how its operating system schedules: measured by
//! `deconvoy doctor --calibrate`, or given as data.

use std::fmt;

use deconvoy_mix::in_words;
use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// A core that has been idle for so long is asleep.
pub const ASLEEP_NS: u64 = 20_000;

/// Lengths of time in nanoseconds; those of type [`Latency`] differ from one time to the next.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// One instruction of the interpreter's.
    pub instruction_ns: f64,
    /// From one look at the eval-breaker to the next.
    pub check_ns: u64,
    /// An acquisition of a free lock that several threads use.
    pub acquire_ns: u64,
    /// A release of it.
    pub release_ns: u64,
    /// Each of them while one thread has the lock to itself.
    pub own_ns: u64,
    /// A call to the system that finds what it wants.
    pub call_ns: Latency,
    /// To send a message, without waking anybody.
    pub send_ns: Latency,
    /// To receive a message that is there.
    pub receive_ns: Latency,
    /// To wake a thread that sleeps: what it costs the one that wakes it.
    pub wake_ns: Latency,
    /// The same where the core has fallen idle just now, is the waker's own, or is busy.
    pub fresh_waker_ns: Latency,
    /// From the wake-up until it runs, on a core that was idle.
    pub idle_wake_ns: Latency,
    /// The same on a core that has fallen idle just now; all in between as far as it is from there to
    /// [`ASLEEP_NS`].
    pub fresh_wake_ns: Latency,
    /// From one thread to another on the same core.
    pub switch_ns: Latency,
    /// Until a thread that spins has seen what it waits for.
    pub spin_ns: u64,
    /// From a release until a thread that stays awake has the lock, with all that both do for it. To
    /// begin to wait, and to ask, takes half of that.
    pub hand_off_ns: Latency,
    /// What it costs a thread that runs when another one's timer goes off on its core, beside the
    /// switches from one to the other.
    pub interrupt_ns: u64,
    /// A timer is late by this.
    pub timer_ns: Latency,
    /// A thread that sets where it may run, if it stays where it is.
    pub affinity_ns: u64,
    /// The same if it has to go to another core.
    pub migrate_ns: u64,
    pub scheduler: Scheduler,
}

/// An operating system's scheduler, of the kind of Linux's CFS and EEVDF: a queue for each core, in
/// which whoever has run least goes first.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scheduler {
    /// How often a core looks whether another thread's turn has come.
    pub tick_ns: u64,
    /// Nobody is made to stop before it has run so long.
    pub slice_ns: u64,
    /// A thread that wakes up goes before one that runs if it has run so much less, and that one has
    /// had its slice; 0: if it has run less.
    pub wakeup_ns: u64,
    /// So much less than the others of its core a thread that has slept may have run: what a
    /// sleeper is given.
    pub bonus_ns: u64,
    /// So much more it may have run at most: what it ran too much before is forgotten.
    pub debt_ns: u64,
    /// A thread that wakes up preempts whoever runs even in its slice, by `wakeup_ns`.
    pub preempts: bool,
    /// It is put on an idle core if there is one, also on one that is asleep. (Linux takes a virtual
    /// machine's core that sleeps for one that the host may not run.)
    pub sees_idle: bool,
}

impl Default for Scheduler {
    /// Linux 6.18 on a virtual machine with two cores: EEVDF, 250 Hz.
    fn default() -> Scheduler {
        Scheduler {
            tick_ns: 4_000_000,
            slice_ns: 1_400_000,
            wakeup_ns: 0,
            bonus_ns: 0,
            debt_ns: 4_000_000,
            preempts: true,
            sees_idle: false,
        }
    }
}

impl Default for Costs {
    /// Round figures of the machine that this project was built on, a virtual one with two cores; the
    /// preset `vm` has them as measured.
    fn default() -> Costs {
        Costs {
            instruction_ns: 2.5,
            check_ns: 25,
            acquire_ns: 120,
            release_ns: 120,
            own_ns: 6,
            call_ns: Latency::always(400),
            send_ns: Latency::always(6_000),
            receive_ns: Latency::always(1_500),
            wake_ns: Latency::always(3_000),
            fresh_waker_ns: Latency::always(1_500),
            idle_wake_ns: Latency::always(30_000),
            fresh_wake_ns: Latency::always(4_500),
            switch_ns: Latency::always(1_500),
            spin_ns: 200,
            hand_off_ns: Latency::always(800),
            interrupt_ns: 2_000,
            timer_ns: Latency::always(55_000),
            affinity_ns: 1_000,
            migrate_ns: 20_000,
            scheduler: Scheduler::default(),
        }
    }
}

/// The costs that come with the project, by name.
pub const PRESETS: [(&str, &str); 3] = [
    ("vm", include_str!("../costs/vm.toml")),
    ("server", include_str!("../costs/server.toml")),
    ("2010", include_str!("../costs/2010.toml")),
];

/// What is wrong with a file of costs; fit for a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CostsError(String);

impl fmt::Display for CostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CostsError {}

impl Costs {
    /// Reads a file of costs; what it does not say is as it is by default.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn parse(text: &str) -> Result<Costs, CostsError> {
        let costs: Costs =
            toml::from_str(text).map_err(|error| CostsError(in_words(text, &error)))?;
        if !(costs.instruction_ns.is_finite() && costs.instruction_ns > 0.0) {
            return Err(CostsError("instruction_ns must be more than 0".into()));
        }
        if costs.scheduler.tick_ns == 0 || costs.check_ns == 0 {
            return Err(CostsError("tick_ns and check_ns must be more than 0".into()));
        }
        Ok(costs)
    }

    /// One of the presets.
    pub fn named(name: &str) -> Option<Costs> {
        let (_, text) = PRESETS.iter().find(|(known, _)| *known == name)?;
        Costs::parse(text).ok()
    }
}
