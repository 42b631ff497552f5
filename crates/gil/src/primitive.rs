//! Atomics and the spin hint, swapped for loom's when the model checker runs (`ci/loom`).

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use core::hint::spin_loop;

#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;

/// A constructor that is `const`, but not under loom, whose atomics are made at run time.
macro_rules! const_but_for_loom {
    (pub fn $name:ident() -> $type:ty $body:block) => {
        #[cfg(not(loom))]
        pub const fn $name() -> $type $body

        #[cfg(loom)]
        pub fn $name() -> $type $body
    };
}

pub(crate) use const_but_for_loom;
