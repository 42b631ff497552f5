//! `adaptive` and threads that wake each other.

mod told;

use deconvoy_policy::{Event, Nanos, Slot, WaiterId};
use told::{Told, timer_of};

const SLICE_US: u64 = 5_000;

/// One that computes and two that were elsewhere for long.
fn one_computes<'a>(slots: &'a mut [Slot], [computes, others @ ..]: [WaiterId; 3]) -> Told<'a> {
    let mut told = Told::new(slots, 3);
    for who in others {
        told.tell(Event::Acquire { who });
        told.tell(Event::Release { who, asked: false });
    }
    told.tell(Event::Acquire { who: computes });
    told.pass(Nanos::from_millis(50));
    told.tell(Event::Release { who: computes, asked: true });
    told.tell(Event::Acquire { who: computes });
    told
}

fn asks_at_once(told: &mut Told, who: WaiterId) -> bool {
    let actions = told.tell(Event::Arrive { who });
    timer_of(who, &actions) == Some(told.now.after(Nanos::from_millis(5)))
        && actions.contains(&deconvoy_policy::Action::Ask { who })
}

/// A thread that computes and feeds a queue is not stopped for each item by the one that takes it.
#[test]
fn whoever_the_holder_itself_has_woken_lets_it_have_its_slice() {
    let [computes, one, other] = [0, 1, 2].map(WaiterId);
    let mut slots = [Slot::default(); 3];
    let mut told = one_computes(&mut slots, [computes, one, other]);
    told.tell(Event::Woken { who: one, by: computes });
    assert_eq!(told.patience_us(one), SLICE_US);
    // One for which something has come from outside asks at once.
    assert!(asks_at_once(&mut told, other));
}

/// Two threads that hand work to and fro are not kept from it by a third that computes.
#[test]
fn whoever_another_thread_has_woken_asks_one_that_computes_at_once() {
    let [computes, one, other] = [0, 1, 2].map(WaiterId);
    let mut slots = [Slot::default(); 3];
    let mut told = one_computes(&mut slots, [computes, one, other]);
    told.tell(Event::Woken { who: one, by: other });
    assert!(asks_at_once(&mut told, one));
}

/// What the last absence ended with says nothing of the next one.
#[test]
fn who_woke_it_counts_once() {
    let [computes, one, other] = [0, 1, 2].map(WaiterId);
    let mut slots = [Slot::default(); 3];
    let mut told = one_computes(&mut slots, [computes, one, other]);
    told.tell(Event::Woken { who: one, by: computes });
    told.tell(Event::Arrive { who: one });
    told.tell(Event::Release { who: computes, asked: true });
    told.tell(Event::Acquire { who: one });
    told.tell(Event::Release { who: one, asked: false });
    told.pass(Nanos::from_millis(5));
    told.tell(Event::Acquire { who: computes });
    told.pass(Nanos::from_millis(20));
    assert!(asks_at_once(&mut told, one));
}

/// Of threads that wake nobody but each other each has a slice; one that was woken for what came from
/// outside waits for a moment only.
#[test]
fn threads_that_wake_each_other_take_turns_by_the_slice() {
    for (outside, patience_us) in [(false, SLICE_US), (true, 500)] {
        let [holder, waker, one] = [0, 1, 2].map(WaiterId);
        let mut slots = [Slot::default(); 3];
        let mut told = Told::new(&mut slots, 3);
        for who in [holder, waker, one] {
            told.tell(Event::Acquire { who });
            told.tell(Event::Release { who, asked: false });
        }
        told.pass(Nanos::from_millis(20));
        if !outside {
            told.tell(Event::Woken { who: waker, by: holder });
        }
        told.tell(Event::Acquire { who: waker });
        told.tell(Event::Release { who: waker, asked: false });
        told.tell(Event::Acquire { who: holder });
        told.tell(Event::Woken { who: one, by: waker });
        let waits_us = told.patience_us(one);
        // The holder's credit, and what it may finish then.
        assert_eq!(waits_us.min(SLICE_US), patience_us, "{outside}: {waits_us}");
    }
}
