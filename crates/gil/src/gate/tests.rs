//! One thread plays all, against a clock that it moves.

use core::cell::Cell;

use deconvoy_policy::{Driver, Slot, Spec};

use super::*;
use crate::primitive::AtomicU32;

const DRIVER: Driver = Driver { cores: 2, counts_instructions: false };

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
    let policy = Spec::parse(policy).unwrap().build(DRIVER, &mut slots);
    let mut gate = Gate::new(1, policy, &parkers, &mut generations, 2, (), ());
    let system = Still(Cell::new(Nanos::from_millis(1)));
    gate.acquired(&system, system.now(), seat(0));
    for (number, parker) in parkers.iter().enumerate().skip(1) {
        assert!(!parker.is_inside(1));
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

/// The alarm comes to a wait in which there was a switch, so that CPython would not listen: the
/// waiter asks in its next wait, and soon.
#[test]
fn who_could_not_ask_when_all_did_asks_soon() {
    with_waiters("priority", 4, |gate, system| {
        let parkers = gate.parkers;
        let last = WaiterId(4);
        let pass = |time| system.0.set(system.now().after(time));
        while !parkers[4].is_at_floor(system.now()) {
            pass(Nanos::from_millis(1));
            if gate.look(system, WaiterId(1), &parkers[1], false).is_some() {
                gate.enter(system, system.now(), seat(1), INTERVAL);
            }
        }
        assert!(gate.unheard > UNHEARD, "not before the alarm");
        assert_eq!(gate.look(system, last, &parkers[4], true), Some(Outcome::Retry));
        assert_eq!(gate.enter(system, system.now(), seat(4), INTERVAL), None);
        assert_eq!(gate.look(system, last, &parkers[4], false), None);
        pass(INTERVAL);
        assert_eq!(gate.look(system, last, &parkers[4], false), Some(Outcome::Ask));
        assert_eq!(gate.enter(system, system.now(), seat(4), INTERVAL), None);
        pass(INTERVAL);
        assert_eq!(gate.look(system, last, &parkers[4], false), None, "once");
    });
}

#[test]
fn a_lock_that_goes_away_is_kept_for_nobody() {
    with_waiters("adaptive", 2, |gate, system| {
        gate.close(system);
        gate.released(system, system.now(), seat(0));
        assert_eq!(gate.hold, Hold::Free);
    });
}

#[test]
fn a_lock_that_goes_away_wakes_nobody_at_another() {
    with_waiters("adaptive", 2, |gate, system| {
        let mut slots = vec![Slot::default(); 3];
        let mut generations = vec![0; 3];
        let policy = Spec::parse("adaptive").unwrap().build(DRIVER, &mut slots);
        let mut other = Gate::new(2, policy, gate.parkers, &mut generations, 2, (), ());
        other.acquired(system, system.now(), seat(0));
        other.enter(system, system.now(), seat(1), INTERVAL);
        gate.close(system);
        assert!(!gate.parkers[1].take_woken() && gate.parkers[2].take_woken());
    });
}

/// A thread that had the lock to itself and computed has no credit left, and its slice is over; one
/// that was elsewhere has all.
#[test]
fn whoever_had_the_lock_to_itself_is_known_when_others_come() {
    for computed in [true, false] {
        let mut slots = vec![Slot::default(); 2];
        let mut generations = vec![0; 2];
        let parkers = [Parker::new(), Parker::new()];
        let policy = Spec::parse("adaptive").unwrap().build(DRIVER, &mut slots);
        let mut gate = Gate::new(1, policy, &parkers, &mut generations, 2, (), ());
        let system = Still(Cell::new(Nanos::from_millis(1)));
        gate.acquired(&system, system.now(), seat(0));
        gate.released(&system, system.now(), seat(0));
        let own = Own { seat: seat(0), since: system.now(), used: Nanos::ZERO };
        system.0.set(system.now().after(Nanos::from_millis(100)));
        gate.returned(&system, system.now(), &own, computed, true);
        assert_eq!(gate.enter(&system, system.now(), seat(1), INTERVAL), None);
        // It came to a holder that had credit once, and is in no haste.
        system.0.set(system.now().after(Nanos::from_micros(100)));
        let then = gate.look(&system, WaiterId(1), &parkers[1], false);
        assert_eq!(then, computed.then_some(Outcome::Ask));
        // It came to a lock that was free, and the other one holds nothing.
        gate.returned(&system, system.now(), &own, computed, false);
        gate.acquired(&system, system.now(), seat(1));
        assert_eq!(gate.hold, Hold::Held);
    }
}

/// A thread that this gate has never seen has nothing to give, whatever its number had.
#[test]
fn a_maker_is_known_by_number_and_generation() {
    for (generation, is_told) in [(1, true), (2, false), (0, false)] {
        let told = Cell::new(false);
        let mut slots = vec![Slot::default(); 3];
        let mut generations = vec![0; 3];
        let parkers = [Parker::new(), Parker::new(), Parker::new()];
        let policy = Spec::parse("adaptive").unwrap().build(DRIVER, &mut slots);
        let made = Made(&told);
        let mut gate = Gate::new(1, policy, &parkers, &mut generations, 2, made, ());
        let system = Still(Cell::new(Nanos::from_millis(1)));
        gate.acquired(&system, system.now(), seat(1));
        gate.released(&system, system.now(), seat(1));
        gate.made(&system, system.now(), seat(2), (WaiterId(1), generation));
        assert_eq!(told.get(), is_told, "{generation}");
    }
}

struct Made<'a>(&'a Cell<bool>);

impl Observer for Made<'_> {
    fn event(&mut self, _: Nanos, event: Event) {
        self.0.set(self.0.get() || matches!(event, Event::Made { .. }));
    }

    fn action(&mut self, _: Nanos, _: Action) {}
}

/// A thread's name, and with it its priority, is known only once it has had the lock.
#[test]
fn a_priority_that_is_known_late_counts_from_then_on() {
    let mut slots = vec![Slot::default(); 2];
    let mut generations = vec![0; 2];
    let parkers = [Parker::new(), Parker::new()];
    let policy = Spec::parse("priority").unwrap().build(DRIVER, &mut slots);
    let mut gate = Gate::new(1, policy, &parkers, &mut generations, 2, (), ());
    let system = Still(Cell::new(Nanos::from_millis(1)));
    let [spinner, io] = [0, 1].map(|n| Seat { priority: 0, ..seat(n) });
    let named = Seat { priority: 10, ..io };
    gate.acquired(&system, system.now(), spinner);
    assert_eq!(gate.enter(&system, system.now(), io, INTERVAL), None);
    gate.released(&system, system.now(), spinner);
    parkers[1].exit();
    gate.acquired(&system, system.now(), named);
    gate.released(&system, system.now(), named);
    gate.acquired(&system, system.now(), spinner);
    assert_eq!(gate.enter(&system, system.now(), named, INTERVAL), Some(Outcome::Ask));
}
