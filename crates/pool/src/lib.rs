//! The thread pool under thread futures: who runs what next, who sleeps, who is to be woken.
//!
//! Nothing here knows of Python: the pool decides, its caller makes threads and runs what it is given.
//! Beside it a value for the whole process that threads read without a lock.

mod parker;
mod pool;
mod primitive;
mod process_global;
mod queue;

pub use parker::{Parked, Parker};
pub use pool::{Need, Pool, Rest, Ticket, Worker};
pub use process_global::{Cached, Epoch, ProcessGlobal, Reader};
pub use queue::Queue;
