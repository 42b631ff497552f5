//! Atomics and the spin hint, swapped for loom's when the model checker runs (`ci/loom`).

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use core::hint::spin_loop;

#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;
