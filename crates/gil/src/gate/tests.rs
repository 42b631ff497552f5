//! One thread plays all, against a clock that it moves.

use core::cell::Cell;

use deconvoy_policy::{Slot, Spec};

use super::*;
use crate::primitive::AtomicU32;

/// Its clock stands still but for the test; nobody sleeps.
struct Still(Cell<Nanos>);

impl System for Still {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn futex_wait(&self, _: &AtomicU32, _: u32, _: Option<Nanos>) {
        panic!("a test of one thread must not sleep");
    }

    fn futex_wake(&self, _: &AtomicU32, _: u32) {}
}

impl Latch for () {
    fn close(&self) {}
    fn open(&self) {}
}

const INTERVAL: Nanos = Nanos::from_millis(5);

/// The first two go before the rest.
fn seat(number: u32) -> Seat {
    Seat { who: WaiterId(number), generation: 1, priority: i8::from(number < 2) }
}

/// Thread 0 holds the lock, and all others wait for it.
fn with_waiters(policy: &str, count: u32, test: impl FnOnce(&mut Gate<'_, (), ()>, &Still)) {
    let mut slots = vec![Slot::default(); count as usize + 1];
    let mut generations = vec![0; count as usize + 1];
    let parkers: Vec<Parker> = (0..=count).map(|_| Parker::new()).collect();
    let policy = Spec::parse(policy).unwrap().build(2, &mut slots);
    let mut gate = Gate::new(policy, &parkers, &mut generations, 2, (), ());
    let system = Still(Cell::new(Nanos::from_millis(1)));
    gate.acquired(&system, system.now(), seat(0));
    for (number, parker) in parkers.iter().enumerate().skip(1) {
        parker.enter(system.now().after(FLOOR));
        let ends = gate.enter(&system, system.now(), seat(number as u32), INTERVAL);
        assert_eq!(ends, None);
    }
    test(&mut gate, &system);
}

/// Who asks if every waiter looks now.
fn asking(gate: &mut Gate<'_, (), ()>, system: &Still) -> Vec<u32> {
    let parkers = gate.parkers;
    let looks = (1..parkers.len() as u32).filter(|&number| {
        let parker = &parkers[number as usize];
        let outcome = gate.look(system, WaiterId(number), parker, false);
        if outcome.is_some() {
            parker.enter(system.now().after(FLOOR));
            gate.enter(system, system.now(), seat(number), INTERVAL);
        }
        outcome == Some(Outcome::Ask)
    });
    looks.collect()
}

#[test]
fn all_ask_a_holder_that_does_not_hear() {
    with_waiters("priority", 4, |gate, system| {
        let begun = system.now();
        let mut all = Vec::new();
        while all.len() < 2 && system.now().since(begun) < FLOOR {
            system.0.set(system.now().after(Nanos::from_millis(1)));
            let asking = asking(gate, system);
            if asking.len() == 4 {
                all.push(system.now().since(begun));
            }
        }
        // An equal asks each interval; those below do not, but for this.
        assert!(all[0] >= UNHEARD && all[1].since(all[0]) >= UNHEARD, "{all:?}");
    });
}

#[test]
fn a_lock_that_goes_away_lets_all_out_as_from_a_timeout() {
    for policy in ["timeout", "priority", "adaptive"] {
        with_waiters(policy, 4, |gate, system| {
            gate.close(system);
            assert_eq!(asking(gate, system), [1, 2, 3, 4], "{policy}");
        });
    }
}

/// A thread that had the lock to itself for long, and computed, has no credit afterwards; one
/// that was elsewhere has.
#[test]
fn whoever_had_the_lock_to_itself_is_known_when_others_come() {
    for holding in [true, false] {
        let mut slots = vec![Slot::default(); 2];
        let mut generations = vec![0; 2];
        let parkers = [Parker::new(), Parker::new()];
        let policy = Spec::parse("adaptive").unwrap().build(2, &mut slots);
        let mut gate = Gate::new(policy, &parkers, &mut generations, 2, (), ());
        let system = Still(Cell::new(Nanos::from_millis(1)));
        let pass = |time| system.0.set(system.now().after(time));
        gate.acquired(&system, system.now(), seat(0));
        pass(Nanos::from_millis(10));
        gate.released(&system, system.now(), seat(0));
        gate.acquired(&system, system.now(), seat(0));
        assert!(gate.computes(WaiterId(0)));
        if !holding {
            gate.released(&system, system.now(), seat(0));
        }
        pass(Nanos::from_millis(100));
        gate.returned(&system, system.now(), WaiterId(0));
        gate.is_held_by(&system, system.now(), seat(0));
        assert_eq!(gate.computes(WaiterId(0)), holding);
    }
}
