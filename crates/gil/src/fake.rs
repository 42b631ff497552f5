//! A system for tests of one thread.

use std::cell::RefCell;

use deconvoy_policy::Nanos;

use crate::{AtomicU32 as Word, Cores, System};

/// A system that keeps the calling thread's cores.
pub struct Fake {
    pub allowed: RefCell<Cores>,
    pub core: Option<u32>,
}

impl System for Fake {
    fn now(&self) -> Nanos {
        Nanos(1_000_000)
    }
    fn futex_wait(&self, _: &Word, _: u32, _: Option<Nanos>) {}
    fn futex_wake(&self, _: &Word, _: u32) {}
    fn core(&self) -> Option<u32> {
        self.core
    }
    fn allowed(&self) -> Option<Cores> {
        Some(*self.allowed.borrow())
    }
    fn allow(&self, cores: &Cores) -> bool {
        *self.allowed.borrow_mut() = *cores;
        true
    }
}

pub fn cores(list: &[u32]) -> Cores {
    let mut cores = [0; 16];
    for &core in list {
        cores[core as usize / 64] |= 1 << (core % 64);
    }
    cores
}
