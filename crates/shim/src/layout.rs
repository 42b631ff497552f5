//! `struct _gil_runtime_state`, in bytes from `cond`: the same from 3.8 to 3.15 in every build.

pub const INTERVAL: usize = 32; // before
pub const LOCKED: usize = 16; // before
pub const SWITCHES: usize = 8; // before
pub const MUTEX: usize = COND_BYTES;
pub const SWITCH_COND: usize = MUTEX + MUTEX_BYTES;
pub const SWITCH_MUTEX: usize = SWITCH_COND + COND_BYTES;

pub const COND_BYTES: usize = 48;
#[cfg(target_arch = "x86_64")]
const MUTEX_BYTES: usize = 40;
#[cfg(target_arch = "aarch64")]
const MUTEX_BYTES: usize = 48;

/// The longest switch interval that can be one, in us: nearly three hours.
pub const LONGEST_INTERVAL_US: u64 = 10_000_000_000;
