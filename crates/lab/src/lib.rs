//! The lab: a toy virtual machine whose threads, sockets and locks are real, under any policy, or
//! under a lock as the library of it has it.
//!
//! - [`gil`]: the lock that the threads share, behind one trait;
//! - [`vm`]: the machine: instructions, an eval-breaker, calls that block without the lock;
//! - [`calibrate`]: what the machine's operations take;
//! - [`countdown`], [`messaging`]: the experiments, as `scenarios/` states them;
//! - [`workload`]: any workload that is given as data.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod countdown;
pub mod gil;
pub mod messaging;
pub mod vm;
pub mod workload;

pub use gil::{AnyGil, Choice, Gil, Me};
