//! A workload as data: groups of threads, and what each does over and over. The simulator and the lab
//! run the same file.
//!
//! ```toml
//! about = "an echo server beside a thread that computes"
//! duration = "10s"
//!
//! [[threads]]
//! name = "spin"
//! loop = [{ compute = "forever" }]
//!
//! [[threads]]
//! name = "server"
//! count = 4
//! loop = [{ block = { exponential = "1ms" } }, { compute = "20us" }]
//! ```
#![forbid(unsafe_code)]

mod distribution;
mod time;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

pub use distribution::{Amount, Distribution};
pub use time::Time;
pub use words::in_words;

/// Threads of all groups together, at most.
pub const MAX_THREADS: u32 = 100_000;

/// Steps of one loop, at most.
pub const MAX_STEPS: usize = 1_000;

/// A workload.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    #[serde(default)]
    pub about: String,
    /// It ends then at the latest.
    #[serde(default = "default_duration")]
    pub duration: Time,
    #[serde(default)]
    pub threads: Vec<Group>,
}

fn default_duration() -> Time {
    Time(10_000_000_000)
}

/// Threads that do the same.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub name: String,
    #[serde(default = "one")]
    pub count: u32,
    #[serde(default)]
    pub priority: i8,
    /// Of the program whose threads share the lock. One that is not is a process of its own, that
    /// runs beside it: a client.
    #[serde(default = "yes")]
    pub gil: bool,
    /// How often it goes round; without end if nothing is said. The workload ends when all that go
    /// round so often are done.
    #[serde(default)]
    pub times: Option<u32>,
    /// The first of them begins after this, and each of the others as long after the one before.
    #[serde(default)]
    pub after: Time,
    #[serde(rename = "loop")]
    pub steps: Vec<Step>,
}

impl Group {
    /// The name of one of its threads: with its number, if there are several.
    pub fn thread_name(&self, number: u32) -> String {
        if self.count == 1 { self.name.clone() } else { format!("{}-{number}", self.name) }
    }
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// One thing that a thread does. `C`: how a channel is referred to, in a file by its name.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step<C = String> {
    /// Runs instructions, with the lock.
    Compute(Amount),
    /// Runs C code that never looks whether it is to give way, with the lock.
    Hog(Distribution),
    /// Runs C code without the lock.
    Native(Distribution),
    /// Makes a call that may block, without the lock: so long off the processor, beside what the call
    /// itself takes. `0us`: its data was there.
    Block(Distribution),
    /// Sleeps, without the lock: at least so long.
    Sleep(Distribution),
    /// Puts a message into a channel, without the lock.
    Send(C),
    /// Takes one out of a channel, without the lock, and waits for it if there is none.
    Receive(C),
}

impl Step {
    /// The same with what runs it has for the channels of these names.
    pub fn with_channels<C>(&self, mut channel: impl FnMut(&str) -> C) -> Step<C> {
        match self {
            Step::Compute(amount) => Step::Compute(*amount),
            Step::Hog(time) => Step::Hog(*time),
            Step::Native(time) => Step::Native(*time),
            Step::Block(time) => Step::Block(*time),
            Step::Sleep(time) => Step::Sleep(*time),
            Step::Send(name) => Step::Send(channel(name)),
            Step::Receive(name) => Step::Receive(channel(name)),
        }
    }
}

/// What is wrong with a workload; fit for a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MixError(String);

impl fmt::Display for MixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MixError {}

impl Mix {
    /// Reads a workload, and checks that it can be run.
    ///
    /// # Errors
    /// One line that says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Mix, MixError> {
        let mix: Mix = toml::from_str(text).map_err(|error| MixError(in_words(text, &error)))?;
        mix.check()?;
        Ok(mix)
    }

    /// How many threads there are.
    pub fn count(&self) -> u32 {
        self.threads.iter().map(|group| group.count).sum()
    }

    /// The names of all channels, each with its number.
    pub fn channels(&self) -> BTreeMap<&str, usize> {
        let mut numbers = BTreeMap::new();
        for step in self.threads.iter().flat_map(|group| &group.steps) {
            if let Step::Send(name) | Step::Receive(name) = step {
                let next = numbers.len();
                numbers.entry(name.as_str()).or_insert(next);
            }
        }
        numbers
    }

    fn check(&self) -> Result<(), MixError> {
        let wrong = |why: String| Err(MixError(why));
        let threads: u64 = self.threads.iter().map(|group| u64::from(group.count)).sum();
        if threads == 0 {
            return wrong("a mix needs threads: [[threads]] with a count of 1 or more".into());
        }
        if threads > u64::from(MAX_THREADS) {
            return wrong(format!("{threads} threads are more than {MAX_THREADS}"));
        }
        if self.duration.0 == 0 {
            return wrong("duration must be more than 0".into());
        }
        for group in &self.threads {
            let name = &group.name;
            if self.threads.iter().filter(|other| other.name == *name).count() > 1 {
                return wrong(format!("{name}: two groups have this name"));
            }
            if group.count == 0 {
                return wrong(format!("{name}: count must be 1 or more"));
            }
            if group.steps.is_empty() {
                return wrong(format!("{name}: its loop is empty"));
            }
            if group.steps.len() > MAX_STEPS {
                return wrong(format!("{name}: its loop has more than {MAX_STEPS} steps"));
            }
            if group.times == Some(0) {
                return wrong(format!("{name}: times must be 1 or more"));
            }
            let last = group.steps.len() - 1;
            for (place, step) in group.steps.iter().enumerate() {
                match step {
                    Step::Compute(Amount::Forever) if place != last => {
                        return wrong(format!("{name}: nothing comes after compute = \"forever\""));
                    }
                    Step::Compute(_) | Step::Hog(_) if !group.gil => {
                        return wrong(format!("{name}: without the lock it runs native code only"));
                    }
                    _ => {}
                }
            }
            let idle = |step: &Step| {
                matches!(step, Step::Send(_))
                    || matches!(step, Step::Compute(Amount::Of(it)) if it.is_nothing())
                    || matches!(step, Step::Native(it) | Step::Hog(it) if it.is_nothing())
            };
            if group.steps.iter().all(idle) && group.times.is_none() {
                return wrong(format!("{name}: its loop takes no time and has no end"));
            }
        }
        for name in self.channels().keys() {
            let has = |is: fn(&Step) -> Option<&String>| {
                self.threads
                    .iter()
                    .flat_map(|group| &group.steps)
                    .filter_map(is)
                    .any(|it| it == name)
            };
            let sent = has(|step| if let Step::Send(name) = step { Some(name) } else { None });
            let got = has(|step| if let Step::Receive(name) = step { Some(name) } else { None });
            if !(sent && got) {
                let missing = if sent { "receives from" } else { "sends to" };
                return wrong(format!("nobody {missing} the channel {name:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
