//! The parker's protocol and that of a forced switch, in every order that the memory model allows.
//! Run by `ci/loom`.
#![cfg(loom)]

mod model;

use deconvoy_gil::{
    AtomicU32, Gate, GateCell, Guard, Keep, Latch, Linger, Parker, Place, wait_for_switch,
};
use deconvoy_policy::{Nanos, Slot, Spec};
use model::{DRIVER, Model, NOW};

const NEVER: Nanos = Nanos(u64::MAX - 1);
use loom::sync::atomic::Ordering;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

fn check(act: impl Fn(&Parker, &Model) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let system = Model::new();
        let parker = Arc::new(Parker::new());
        parker.enter(1, NEVER);
        let waker = {
            let (parker, system) = (parker.clone(), system.clone());
            thread::spawn(move || act(&parker, &system))
        };
        parker.park(&system, Place { keep: Keep::Anywhere, linger: Linger::Spin });
        waker.join().unwrap();
    });
}

#[test]
fn a_wake_up_is_never_lost() {
    check(|parker, system| {
        parker.wake(system);
    });
}

#[test]
fn a_wake_up_that_is_taken_back_and_given_again_is_not_lost() {
    check(|parker, system| {
        parker.wake(system);
        parker.take_woken();
        parker.wake(system);
    });
}

#[test]
fn a_timer_that_is_due_is_never_slept_past() {
    check(|parker, system| parker.set_timer(system, NOW));
}

#[test]
fn a_timer_that_is_set_between_a_wake_up_and_its_end_is_not_slept_past() {
    check(|parker, system| {
        parker.wake(system);
        parker.set_timer(system, NOW);
        parker.take_woken();
    });
}

#[test]
fn a_later_timer_does_not_hide_an_earlier_one() {
    check(|parker, system| {
        parker.set_timer(system, Nanos(NOW.0 + 10));
        parker.set_timer(system, NOW);
    });
}

#[test]
fn advice_to_stay_awake_does_not_hide_a_wake_up() {
    check(|parker, system| {
        parker.set_linger(system, Nanos::ZERO);
        parker.wake(system);
    });
}

#[test]
fn a_floor_that_is_lowered_is_never_slept_past() {
    check(|parker, system| parker.set_floor(system, NOW));
}

/// A mutex of loom's parts that is locked and unlocked apart.
struct Raw {
    locked: Mutex<bool>,
    unlocked: Condvar,
}

impl Guard for &Raw {
    unsafe fn lock(&self) {
        let mut locked = self.locked.lock().unwrap();
        while *locked {
            locked = self.unlocked.wait(locked).unwrap();
        }
        *locked = true;
    }

    unsafe fn try_lock(&self) -> bool {
        !std::mem::replace(&mut *self.locked.lock().unwrap(), true)
    }

    unsafe fn unlock(&self) {
        *self.locked.lock().unwrap() = false;
        self.unlocked.notify_one();
    }
}

/// The lock itself is not in the model.
struct Unmoved;

impl Latch for Unmoved {
    fn close(&self) {}
    fn open(&self) {}
}

#[test]
fn a_forced_switch_is_never_slept_past() {
    loom::model(|| {
        // Not given back: threads of the model must own what they see.
        let slots = Box::leak(Box::new([Slot::default(); 2]));
        let generations = Box::leak(Box::new([0; 2]));
        let parkers = Box::leak(Box::new([Parker::new(), Parker::new()]));
        let policy = Spec::parse("timeout").unwrap().build(DRIVER, slots);
        let cell =
            Arc::new(GateCell::new(Gate::new(1, policy, parkers, generations, 2, (), Unmoved)));
        let switch = Arc::new(Raw { locked: Mutex::new(false), unlocked: Condvar::new() });
        let taken = Arc::new(AtomicU32::new(0));
        let system = Model::new();
        let taker = {
            let (cell, switch) = (cell.clone(), switch.clone());
            let (taken, system) = (taken.clone(), system.clone());
            thread::spawn(move || {
                let switch = &*switch;
                // SAFETY: this thread holds it in between.
                unsafe {
                    switch.lock();
                    taken.store(1, Ordering::Relaxed);
                    cell.announce_taken(&system);
                    switch.unlock();
                }
            })
        };
        let switch = &*switch;
        // SAFETY: as above.
        unsafe {
            switch.lock();
            if taken.load(Ordering::Relaxed) == 0 {
                wait_for_switch(&cell, &switch, &system, None);
            }
            assert_eq!(taken.load(Ordering::Relaxed), 1);
            switch.unlock();
        }
        taker.join().unwrap();
    });
}
