//! The simulator: a lock policy in virtual time, on any number of cores, under an operating system's
//! scheduler, with a workload given as data. Deterministic by its seed.
//!
//! - [`run`]: a workload from its beginning to its end;
//! - [`costs`]: what the operations of a machine take;
//! - [`outcome`]: what came of it.
#![forbid(unsafe_code)]

mod agenda;
mod check;
mod cores;
pub mod costs;
mod engine;
mod forced;
mod gate;
mod latency;
pub mod outcome;
mod recording;
mod schedule;
mod steps;
mod thread;

pub use cores::MAX_CORES;
pub use costs::Costs;
pub use engine::{Placed, World, run};
pub use latency::Latency;
pub use outcome::Outcome;
pub use recording::Recording;
