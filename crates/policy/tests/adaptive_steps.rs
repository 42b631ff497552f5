//! What `adaptive` does step by step.

mod told;

use deconvoy_policy::{Action, Driver, Event, Nanos, Policy, Slot, WaiterId};
use told::{DRIVER, Told, timer_of};

/// A thread for each request: what the one that accepts them has earned by waiting is shared by
/// those that it makes, and no more than that.
#[test]
fn adaptive_gives_a_new_thread_half_of_what_its_maker_has() {
    let [maker, spinner] = [0, 1].map(WaiterId);
    let mut slots = [Slot::default(); 8];
    let mut told = Told::new(&mut slots, 2);
    told.tell(Event::Acquire { who: spinner });
    told.pass(Nanos::from_millis(50));
    let mut before_asked_us = Vec::new();
    for who in (2..6).map(WaiterId) {
        told.tell(Event::Start { who, priority: 0 });
        told.tell(Event::Made { who, by: maker });
        told.tell(Event::Release { who: spinner, asked: true });
        told.tell(Event::Acquire { who });
        before_asked_us.push(told.patience_us(spinner));
        told.tell(Event::Release { who, asked: false });
        told.tell(Event::Acquire { who: spinner });
    }
    // 100 us of patience in each.
    assert_eq!(before_asked_us, [2_600, 1_350, 725, 600]);
}

/// The maker was forced out just before, and comes back with what it keeps: not with all of it.
#[test]
fn adaptive_takes_what_it_gives_from_a_maker_that_was_forced_out() {
    let [maker, spinner, new] = [0, 1, 2].map(WaiterId);
    let mut slots = [Slot::default(); 3];
    let mut told = Told::new(&mut slots, 2);
    told.tell(Event::Acquire { who: spinner });
    told.pass(Nanos::from_millis(50));
    told.tell(Event::Release { who: spinner, asked: true });
    told.tell(Event::Acquire { who: maker });
    told.tell(Event::Release { who: maker, asked: true });
    told.tell(Event::Start { who: new, priority: 0 });
    told.tell(Event::Made { who: new, by: maker });
    told.tell(Event::Acquire { who: new });
    told.tell(Event::Release { who: new, asked: false });
    told.tell(Event::Acquire { who: maker });
    assert_eq!(told.patience_us(spinner), 2_600);
}

/// A thread that computes was told to try, and comes only after the next two hand-offs: it waits
/// on. One that has credit may try.
#[test]
fn adaptive_calls_back_who_comes_late_and_computes() {
    let [spinner, first, second] = [0, 1, 2].map(WaiterId);
    for computes in [true, false] {
        let mut slots = [Slot::default(); 3];
        let mut told = Told::new(&mut slots, 3);
        // It stays away for long, so that no grace is worth while.
        for _ in 0..32 {
            told.tell(Event::Acquire { who: first });
            told.tell(Event::Release { who: first, asked: false });
            told.pass(Nanos::from_millis(2));
        }
        if computes {
            told.tell(Event::Acquire { who: spinner });
            told.pass(Nanos::from_millis(50));
            told.tell(Event::Release { who: spinner, asked: true });
        }
        told.tell(Event::Acquire { who: first });
        told.tell(Event::Arrive { who: spinner });
        // So long that it sleeps.
        told.pass(Nanos::from_micros(300));
        let woken = told.tell(Event::Release { who: first, asked: false });
        assert!(woken.contains(&Action::Wake { who: spinner }), "{computes}: {woken:?}");
        told.tell(Event::Acquire { who: first });
        told.tell(Event::Arrive { who: second });
        let actions = told.tell(Event::Release { who: first, asked: false });
        let called_back = actions.contains(&Action::Recall { who: spinner });
        assert_eq!(called_back, computes, "{actions:?}");
    }
}

/// Without credit, because it blocks for less time than it computes, and yet no thread that others
/// should make room for.
#[test]
fn adaptive_does_not_say_that_a_thread_computes_which_needs_the_lock_for_a_moment() {
    for (burst_us, computes) in [(60, false), (300, false), (1_000, true)] {
        let burst = Nanos::from_micros(burst_us);
        let who = WaiterId(0);
        let mut slots = [Slot::default(); 1];
        let mut told = Told::new(&mut slots, 1);
        for _ in 0..32 {
            told.tell(Event::Acquire { who });
            told.pass(burst);
            told.tell(Event::Release { who, asked: false });
            told.pass(Nanos::from_micros(40));
        }
        told.tell(Event::Acquire { who });
        assert_eq!(told.policy.computes(who), computes, "{burst:?}");
    }
}

/// Whoever gives the lock up for good within a moment is let be for a moment, credit or not; one
/// that is back at once computes, however short its holds.
#[test]
fn adaptive_lets_a_thread_be_that_does_not_compute() {
    let [holder, other] = [0, 1].map(WaiterId);
    for (hold_us, away_us, computes) in
        [(60, 40, false), (300, 40, false), (60, 2, true), (900, 40, true)]
    {
        let mut slots = [Slot::default(); 2];
        let mut told = Told::new(&mut slots, 2);
        for _ in 0..200 {
            told.tell(Event::Acquire { who: holder });
            told.pass(Nanos::from_micros(hold_us));
            told.tell(Event::Release { who: holder, asked: false });
            told.pass(Nanos::from_micros(away_us));
        }
        told.tell(Event::Acquire { who: holder });
        told.pass(Nanos::from_micros(20));
        let actions = told.tell(Event::Arrive { who: other });
        let asks = actions.contains(&Action::Ask { who: other });
        assert_eq!(asks, computes, "{hold_us} and {away_us}: {actions:?}");
        if !asks {
            assert_eq!(timer_of(other, &actions), Some(told.now.after(Nanos::from_micros(80))));
        }
    }
}

/// However often it gives the lock up and takes it back, a waiter is patient once.
#[test]
fn adaptive_is_not_patient_anew_with_each_hold() {
    let [holder, other] = [0, 1].map(WaiterId);
    let mut slots = [Slot::default(); 2];
    let mut told = Told::new(&mut slots, 2);
    for _ in 0..200 {
        told.tell(Event::Acquire { who: holder });
        told.pass(Nanos::from_micros(60));
        told.tell(Event::Release { who: holder, asked: false });
        told.pass(Nanos::from_micros(40));
    }
    told.tell(Event::Acquire { who: holder });
    told.tell(Event::Arrive { who: other });
    told.pass(Nanos::from_micros(60));
    told.tell(Event::Release { who: holder, asked: false });
    told.pass(Nanos::from_micros(5));
    told.tell(Event::Acquire { who: holder });
    told.pass(Nanos::from_micros(35));
    let actions = told.tell(Event::Expire { who: other });
    assert!(actions.contains(&Action::Ask { who: other }), "{actions:?}");
}

/// One that arrives behind a holder with credit stays awake, unless that one is known to need the lock
/// for long, or somebody else is awake.
#[test]
fn adaptive_stays_awake_for_a_moment() {
    let [holder, first, second] = [0, 1, 2].map(WaiterId);
    for (hold_us, lingers) in [(20, true), (400, false)] {
        let mut slots = [Slot::default(); 3];
        let mut told = Told::new(&mut slots, 3);
        for _ in 0..32 {
            told.tell(Event::Acquire { who: holder });
            told.pass(Nanos::from_micros(hold_us));
            told.tell(Event::Release { who: holder, asked: false });
            told.pass(Nanos::from_millis(10));
        }
        // So that the second one goes before it.
        told.tell(Event::Acquire { who: first });
        told.pass(Nanos::from_millis(1));
        told.tell(Event::Release { who: first, asked: false });
        told.tell(Event::Acquire { who: holder });
        let mut stays_awake = |who| {
            let actions = told.tell(Event::Arrive { who });
            actions.iter().any(|action| matches!(action, Action::Linger { .. }))
        };
        assert_eq!([stays_awake(first), stays_awake(second)], [lingers, false], "{hold_us}");
    }
}

/// A hog was interrupted, and is awake; the thread that interrupted it is done, and the next one
/// sleeps. The lock is not idle until that one has woken up: it wakes up and asks.
#[test]
fn adaptive_does_not_wait_for_a_sleeper_while_another_is_awake() {
    let [hog, first, sleeper, comes] = [0, 1, 2, 3].map(WaiterId);
    let mut slots = [Slot::default(); 4];
    let mut told = Told::new(&mut slots, 4);
    for who in [first, sleeper, comes] {
        told.tell(Event::Acquire { who });
        told.pass(Nanos::from_micros(20));
        told.tell(Event::Release { who, asked: false });
    }
    told.tell(Event::Acquire { who: hog });
    told.pass(Nanos::from_millis(50));
    told.tell(Event::Release { who: hog, asked: true });
    told.tell(Event::Acquire { who: first });
    // The one place for those who stay awake is the hog's.
    let stays_awake = told.tell(Event::Arrive { who: hog });
    assert!(stays_awake.iter().any(|action| matches!(action, Action::Linger { .. })));
    told.tell(Event::Arrive { who: sleeper });
    told.pass(Nanos::from_micros(20));
    let actions = told.tell(Event::Release { who: first, asked: false });
    assert!(actions.contains(&Action::Wake { who: hog }), "{actions:?}");
    assert_eq!(timer_of(sleeper, &actions), Some(told.now));
    // Whoever comes meanwhile, awake, need not wait for the sleeper either.
    told.tell(Event::Acquire { who: hog });
    told.pass(Nanos::from_micros(10));
    let actions = told.tell(Event::Arrive { who: comes });
    assert!(actions.contains(&Action::Ask { who: comes }), "{actions:?}");
    let actions = told.tell(Event::Release { who: hog, asked: true });
    assert!(actions.contains(&Action::Grant { who: comes }), "{actions:?}");
    assert_eq!(timer_of(sleeper, &actions), None, "it is on its way");
    // Nobody who only looks gives the lock to the sleeper now; it does itself, when it is awake.
    let looks = told.tell(Event::Arrive { who: hog });
    assert!(!looks.iter().any(|action| matches!(action, Action::Grant { .. })), "{looks:?}");
    let actions = told.tell(Event::Expire { who: sleeper });
    assert!(actions.contains(&Action::Grant { who: sleeper }), "{actions:?}");
}

/// With several cores one waits awake behind a holder that needs the lock for a moment, and one that was
/// passed over, asleep, does so too as soon as it has woken up.
#[test]
fn adaptive_keeps_one_awake_that_was_passed_over() {
    let threads = [0, 1, 2, 3].map(WaiterId);
    let [holder, asleep, second, third] = threads;
    let mut slots = [Slot::default(); 4];
    let driver = Driver { cores: 4, ..DRIVER };
    let mut told = Told::on(driver, "adaptive", &mut slots, 4);
    for who in threads {
        told.tell(Event::Acquire { who });
        told.pass(Nanos::from_micros(20));
        told.tell(Event::Release { who, asked: false });
        told.pass(Nanos::from_millis(10));
    }
    let lingers = |actions: &[Action], of| {
        actions.iter().any(|&action| {
            matches!(action, Action::Linger { who, until } if who == of && until > Nanos::ZERO)
        })
    };
    told.tell(Event::Acquire { who: holder });
    assert!(lingers(&told.tell(Event::Arrive { who: asleep }), asleep));
    // It sleeps by now.
    told.pass(Nanos::from_micros(400));
    assert!(lingers(&told.tell(Event::Arrive { who: second }), second));
    assert!(!lingers(&told.tell(Event::Arrive { who: third }), third), "one is enough");
    let actions = told.tell(Event::Release { who: holder, asked: false });
    assert!(actions.contains(&Action::Wake { who: second }), "{actions:?}");
    assert_eq!(timer_of(asleep, &actions), Some(told.now));
    told.tell(Event::Acquire { who: second });
    let actions = told.tell(Event::Expire { who: asleep });
    assert!(lingers(&actions, asleep), "{actions:?}");
    let actions = told.tell(Event::Release { who: second, asked: false });
    assert!(actions.contains(&Action::Wake { who: asleep }), "{actions:?}");
}

/// A thread that is not next looks again after as long as it has waited: of a hundred that wait for
/// each other none wakes up all the time.
#[test]
fn adaptive_looks_ever_less_often_the_longer_it_waits() {
    let mut slots = [Slot::default(); 4];
    let mut told = Told::new(&mut slots, 4);
    let [holder, first, second] = [0, 1, 2].map(WaiterId);
    told.tell(Event::Acquire { who: holder });
    told.tell(Event::Arrive { who: first });
    let mut actions = told.tell(Event::Arrive { who: second });
    let mut waits_us = Vec::new();
    for _ in 0..5 {
        let at = timer_of(second, &actions).unwrap();
        waits_us.push(at.since(told.now).0 / 1_000);
        told.now = at;
        // Nothing that is asked of the holder has an end by itself.
        told.tell(Event::Expire { who: first });
        actions = told.tell(Event::Expire { who: second });
    }
    assert_eq!(waits_us, [300, 300, 600, 1_200, 2_400]);
}

/// What a holder may finish is more than a request is worth: and yet time passes between two looks.
#[test]
fn adaptive_does_not_look_again_at_once() {
    let mut slots = [Slot::default(); 3];
    let mut told = Told::with("adaptive:wakeup=50us,guard=400us", &mut slots, 3);
    let [holder, first, second] = [0, 1, 2].map(WaiterId);
    told.tell(Event::Acquire { who: holder });
    told.tell(Event::Arrive { who: first });
    let mut actions = told.tell(Event::Arrive { who: second });
    for _ in 0..20 {
        let at = timer_of(second, &actions).unwrap();
        assert!(at > told.now, "{actions:?}");
        told.now = at;
        told.tell(Event::Expire { who: first });
        actions = told.tell(Event::Expire { who: second });
    }
}

/// A timer that somebody else sets costs a wake-up: each waiter sets one of its own as it arrives,
/// and a new holder none that is only a little earlier.
#[test]
fn adaptive_wakes_nobody_to_tell_it_when_to_ask() {
    let threads = [0, 1, 2, 3].map(WaiterId);
    let mut slots = [Slot::default(); 4];
    let mut told = Told::new(&mut slots, 4);
    told.tell(Event::Acquire { who: threads[0] });
    for &who in &threads[1..] {
        told.pass(Nanos::from_micros(10));
        let actions = told.tell(Event::Arrive { who });
        let timer = timer_of(who, &actions).unwrap();
        assert!(timer <= told.now.after(Nanos::from_micros(500)), "{who:?}: {actions:?}");
    }
    for pair in threads.windows(2) {
        told.pass(Nanos::from_micros(20));
        told.tell(Event::Release { who: pair[0], asked: false });
        let actions = told.tell(Event::Acquire { who: pair[1] });
        let told_to = |action: &Action| matches!(action, Action::Timer { .. });
        assert!(!actions.iter().any(told_to), "{pair:?}: {actions:?}");
    }
}

/// It sleeps behind one that has as much credit. The next holder has less, and it is due sooner: it
/// is woken for that only if it would be late by more than the slack, or behind one that computes.
#[test]
fn adaptive_tells_a_sleeper_of_an_earlier_request_if_it_would_be_late() {
    let [rich, sleeper, next] = [0, 1, 2].map(WaiterId);
    for (spent_us, burst_us, told_to) in [(200, 0, false), (4_500, 0, true), (200, 2_000, true)] {
        let mut slots = [Slot::default(); 3];
        let mut told = Told::new(&mut slots, 3);
        // `next` needs the lock for so long at a time, or is not known.
        for _ in 0..if burst_us > 0 { 16 } else { 0 } {
            told.tell(Event::Acquire { who: next });
            told.pass(Nanos::from_micros(burst_us));
            told.tell(Event::Release { who: next, asked: false });
            told.pass(Nanos::from_millis(10));
        }
        told.pass(Nanos::from_millis(10));
        told.tell(Event::Acquire { who: next });
        told.pass(Nanos::from_micros(spent_us));
        told.tell(Event::Release { who: next, asked: true });
        told.tell(Event::Acquire { who: rich });
        let actions = told.tell(Event::Arrive { who: sleeper });
        assert_eq!(timer_of(sleeper, &actions), Some(told.now.after(Nanos::from_micros(500))));
        told.pass(Nanos::from_micros(20));
        told.tell(Event::Release { who: rich, asked: false });
        // Somebody else was there first, and `sleeper` has found that.
        told.tell(Event::Acquire { who: rich });
        told.tell(Event::Release { who: rich, asked: true });
        let actions = told.tell(Event::Acquire { who: next });
        let was_told = timer_of(sleeper, &actions).is_some();
        assert_eq!(was_told, told_to, "{spent_us} {burst_us}: {actions:?}");
    }
}
