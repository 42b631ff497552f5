//! Traces: who had the lock, who waited, for how long, and why.
//!
//! - [`format`]: how a trace file is laid out; shared by both sides.
//! - [`record`]: the recorder, in a memory-mapped file: no allocation, no system call an event,
//!   and whatever was written is there after SIGKILL.
//! - [`mutexes`]: how a file of a lock profile is laid out; shared by both sides.
//! - [`notes`]: writes down what goes in and out of a policy, for every driver.
//! - `read` and what follows (feature `read`): the reader, the analysis, the exporters.
#![cfg_attr(not(any(test, feature = "read")), no_std)]

pub mod format;
pub mod histogram;
pub mod mutexes;
pub mod notes;
pub mod record;

#[cfg(feature = "read")]
pub mod analyse;
#[cfg(feature = "read")]
pub mod create;
#[cfg(feature = "read")]
pub mod export;
#[cfg(feature = "read")]
pub mod read;
#[cfg(feature = "read")]
pub mod replay;
