//! Against a clock that the test moves, with a scheduler that lets first come, first served.

use deconvoy_policy::home::{Keep, Linger, Place};
use deconvoy_policy::{Driver, MAX_THREADS, Slot, Spec};

use super::*;

const DRIVER: Driver = Driver { cores: 2, counts_instructions: false };

/// The first two go before the rest, where names say so.
fn seat(number: u32) -> Seat {
    Seat { who: WaiterId(number), generation: 1, priority: i8::from(number < 2) }
}

/// All that was told to the policy, and what it said.
#[derive(Default)]
struct Log(Vec<String>);

impl Observer for &mut Log {
    fn event(&mut self, _: Nanos, event: Event) {
        self.0.push(format!("{event:?}"));
    }

    fn action(&mut self, _: Nanos, action: Action) {
        self.0.push(format!("{action:?}"));
    }
}

fn zeroes() -> Vec<Waiting> {
    (0..MAX_THREADS).map(|_| Waiting { state: 0, timer: 0, linger: 0 }).collect()
}

fn with(policy: &str, test: impl FnOnce(&mut Steer<'_, &mut Log>)) -> Vec<String> {
    let mut slots = vec![Slot::default(); MAX_THREADS];
    let mut known = vec![0; MAX_THREADS];
    let mut waiting = zeroes();
    let mut log = Log::default();
    let policy = Spec::parse(policy).unwrap().build(DRIVER, &mut slots);
    test(&mut Steer::new(policy, &mut known, &mut waiting, 2, &mut log));
    log.0
}

fn at(us: u64) -> Nanos {
    Nanos::from_micros(1_000_000 + us)
}

const MORE: u32 = 9;

#[test]
fn one_that_goes_first_has_the_holder_asked_at_once() {
    with("priority", |steer| {
        steer.acquired(at(0), seat(5), None);
        assert!(!steer.asks());
        steer.arrives(at(10), seat(0));
        assert!(steer.asks());
        steer.released(at(20), seat(5), None);
        assert!(!steer.asks());
        assert_eq!(steer.next(), Some(WaiterId(0)));
        steer.acquired(at(30), seat(0), None);
        assert_eq!(steer.next(), None);
        assert_eq!(steer.holder(), Some(WaiterId(0)));
    });
}

#[test]
fn who_was_called_and_was_not_let_arrives_again() {
    let log = with("priority", |steer| {
        steer.acquired(at(0), seat(5), None);
        steer.arrives(at(1), seat(6));
        steer.arrives(at(2), seat(0));
        steer.released(at(3), seat(5), None);
        assert_eq!(steer.next(), Some(WaiterId(0)));
        // The lock's own queue is another one.
        steer.acquired(at(4), seat(6), None);
        assert!(steer.asks());
        steer.released(at(5), seat(6), None);
        assert_eq!(steer.next(), Some(WaiterId(0)));
    });
    let arrivals = log.iter().filter(|one| one.starts_with("Arrive { who: WaiterId(0)"));
    assert_eq!(arrivals.count(), 2);
}

#[test]
fn who_finds_the_lock_free_takes_it_unnoticed() {
    let log = with("priority", |steer| {
        for round in 0..10 {
            steer.arrives(at(10 * round), seat(0));
            steer.acquired(at(10 * round + 1), seat(0), None);
            steer.released(at(10 * round + 2), seat(0), None);
        }
    });
    assert!(!log.iter().any(|one| one.starts_with("Arrive")));
}

#[test]
fn a_holder_that_was_thought_gone_is_asked_after_a_while() {
    with("priority", |steer| {
        steer.acquired(at(0), seat(MORE), None);
        // It said that it would wait, and went on.
        steer.released(at(1), seat(MORE), None);
        steer.arrives(at(2), seat(0));
        assert_eq!(steer.next_timer(), Some(at(2).after(UNTAKEN)));
        steer.look(at(500));
        assert!(!steer.asks());
        steer.look(at(2).after(UNTAKEN));
        assert_eq!(steer.holder(), Some(WaiterId(MORE)));
        assert!(steer.asks());
    });
}

#[test]
fn one_that_came_back_is_not_taken_for_the_holder() {
    let log = with("priority", |steer| {
        steer.acquired(at(0), seat(0), None);
        steer.released(at(1), seat(0), None);
        // Another one was called, and takes its time.
        steer.arrives(at(2), seat(0));
        steer.look(at(2).after(UNTAKEN));
        assert_eq!(steer.holder(), None);
        steer.acquired(at(3_000), seat(MORE), None);
        assert!(steer.asks());
    });
    assert!(log.iter().any(|one| one.starts_with("Arrive { who: WaiterId(0)")));
}

#[test]
fn who_has_it_and_wakes_up_yet_is_asked_already() {
    let log = with("priority", |steer| {
        steer.acquired(at(0), seat(0), None);
        steer.arrives(at(1), seat(MORE));
        steer.released(at(2), seat(0), None);
        steer.handed(seat(MORE));
        assert_eq!(steer.holder(), None);
        steer.arrives(at(3), seat(0));
        assert_eq!(steer.holder(), Some(WaiterId(MORE)));
        assert!(steer.asks());
        steer.acquired(at(4), seat(MORE), None);
        assert!(steer.asks());
    });
    assert_eq!(log.iter().filter(|one| one.starts_with("Acquire")).count(), 2);
}

/// Two compute, on core 3, and wait; one that does not has the lock now.
fn two_compute(steer: &mut Steer<'_, &mut Log>) -> Nanos {
    let (mut now, mut holder, mut other) = (at(0), seat(5), seat(6));
    steer.acquired(now, seat(MORE), Some(1));
    steer.released(now, seat(MORE), Some(1));
    steer.acquired(now, holder, Some(3));
    steer.arrives(now, other);
    for _ in 0..20 {
        now = now.after(Nanos::from_millis(10));
        steer.look(now);
        assert!(steer.asks());
        steer.released(now, holder, Some(3));
        steer.acquired(now, other, Some(3));
        steer.arrives(now, holder);
        (holder, other) = (other, holder);
    }
    steer.arrives(now, seat(MORE));
    steer.released(now, holder, Some(3));
    steer.acquired(now, seat(MORE), Some(1));
    steer.arrives(now, holder);
    now.after(Nanos::from_micros(5))
}

#[test]
fn those_that_compute_succeed_each_other_on_one_core() {
    with("adaptive", |steer| {
        let now = two_compute(steer);
        for (who, keep) in [(5, Keep::On(3)), (6, Keep::On(3)), (MORE, Keep::Anywhere)] {
            assert_eq!(steer.keep_of(WaiterId(who)), keep);
        }
        assert_eq!(steer.keep_of_asker(Some(1), 0), Keep::Anywhere);
        steer.released(now, seat(MORE), Some(1));
        steer.acquired(now, seat(5), Some(3));
        let kept = |here| [0, 1].map(|tries| steer.keep_of_asker(Some(here), tries));
        assert_eq!(kept(1), [Keep::On(1), Keep::Off(1)]);
        assert_eq!(kept(3), [Keep::Off(3), Keep::On(3)]);
        assert_eq!(steer.keep_of_asker(None, 0), Keep::Anywhere);
    });
}

#[test]
fn who_is_woken_to_answer_keeps_off_the_core_of_those_that_compute() {
    with("adaptive", |steer| {
        let now = two_compute(steer);
        steer.released(now, seat(MORE), Some(1));
        steer.acquired(now, seat(5), Some(3));
        assert_eq!(steer.keep_of(WaiterId(MORE)), Keep::Off(3));
        let off = |core| Place { keep: Keep::Off(core), linger: Linger::Spin };
        assert_eq!(steer.place_to_wait(now, WaiterId(MORE), Some(1)), (off(3), false));
        // The scheduler has moved the holder.
        steer.runs_on(1);
        assert_eq!(steer.place_to_wait(now, WaiterId(MORE), Some(1)), (off(1), true));
        assert_eq!(steer.keep_of(WaiterId(6)), Keep::On(1));
        // To go there took a scheduler's slice: the other core is busy, so it is left alone for now.
        steer.moved(now, now.after(Nanos::from_millis(3)));
        let (place, moves) = steer.place_to_wait(now, WaiterId(MORE), Some(1));
        assert_eq!((place.linger, moves), (Linger::Never, false));
    });
}

#[test]
fn who_was_interrupted_stays_awake_for_the_rest_of_its_slice() {
    with("adaptive", |steer| {
        let now = two_compute(steer);
        steer.released(now, seat(MORE), Some(1));
        steer.acquired(now, seat(5), Some(3));
        let then = now.after(Nanos::from_millis(1));
        steer.arrives(then, seat(MORE));
        assert!(steer.asks_for(WaiterId(MORE)) && !steer.asks_for(WaiterId(6)));
        steer.released(then, seat(5), Some(3));
        steer.acquired(then, seat(MORE), Some(1));
        steer.arrives(then, seat(5));
        let until = steer.stays_awake_until(WaiterId(5)).since(then);
        assert!(until > Nanos::ZERO && until < Nanos::from_millis(1), "{until:?}");
        assert!(steer.stays_awake_until(WaiterId(6)) <= then, "one whose turn is later");
    });
}

#[test]
fn only_those_that_can_be_next_have_the_time_keeper_look() {
    with("adaptive", |steer| {
        two_compute(steer);
        let now = at(2_000_000);
        let many: Vec<Seat> = (20..40).map(seat).collect();
        steer.acquired(now, seat(5), Some(3));
        for one in &many {
            steer.arrives(now, *one);
        }
        let (mut now, mut looks) = (now, 0);
        let end = now.after(Nanos::from_millis(4));
        while let Some(at) = steer.next_timer().filter(|&at| at < end) {
            now = now.after(Nanos(1)).max(at);
            steer.look(now);
            looks += 1;
        }
        assert!(looks <= 20, "{looks} looks for {} waiters in a slice", many.len());
    });
}

#[test]
fn who_is_about_to_come_back_is_waited_for() {
    with("adaptive", |steer| {
        let mut now = two_compute(steer);
        // It is known for coming back soon.
        for _ in 0..20 {
            steer.released(now, seat(MORE), Some(1));
            now = now.after(Nanos::from_micros(5));
            steer.acquired(now, seat(MORE), Some(1));
            now = now.after(Nanos::from_micros(5));
        }
        steer.released(now, seat(MORE), Some(1));
        let begun = now;
        while let Whose::Undecided(until) = steer.whose(now) {
            now = until;
            steer.look(now);
        }
        assert!(now > begun && now.since(begun) < Nanos::from_micros(100));
        assert!(matches!(steer.whose(now), Whose::Of(WaiterId(5 | 6))));
    });
}

#[test]
fn who_lets_others_go_first_has_nobody_asked_for_a_while() {
    with("priority", |steer| {
        steer.acquired(at(0), seat(0), None);
        steer.arrives(at(1), seat(MORE));
        steer.released(at(2), seat(0), None);
        steer.passes(at(3), seat(0));
        steer.acquired(at(4), seat(MORE), None);
        steer.look(at(2_000));
        assert!(!steer.asks());
        steer.look(at(3).after(PASS));
        assert!(steer.asks());
        assert!(steer.is_voluntary(WaiterId(MORE)));
        steer.released(at(6_000), seat(MORE), None);
        assert!(!steer.is_voluntary(WaiterId(MORE)));
    });
}

#[test]
fn who_lets_others_go_first_is_next_when_they_give_it_up() {
    with("priority", |steer| {
        steer.acquired(at(0), seat(0), None);
        steer.arrives(at(1), seat(MORE));
        steer.released(at(2), seat(0), None);
        steer.passes(at(3), seat(0));
        steer.acquired(at(4), seat(MORE), None);
        steer.released(at(500), seat(MORE), None);
        assert_eq!(steer.next(), Some(WaiterId(0)));
    });
}

#[test]
fn a_lock_is_kept_only_for_whom_it_was_granted_to() {
    for (policy, whose) in
        [("timeout", Whose::Quickest(WaiterId(6))), ("fifo", Whose::Of(WaiterId(6)))]
    {
        with(policy, |steer| {
            steer.acquired(at(0), seat(5), None);
            steer.arrives(at(1), seat(6));
            steer.released(at(2), seat(5), None);
            assert_eq!(steer.whose(at(2)), whose, "{policy}");
        });
    }
}

#[test]
fn a_lock_that_nobody_waits_for_is_anyones() {
    with("adaptive", |steer| {
        assert_eq!(steer.whose(at(0)), Whose::Anyones);
        steer.acquired(at(0), seat(5), None);
        steer.released(at(1), seat(5), None);
        assert_eq!(steer.whose(at(1)), Whose::Anyones);
    });
}

#[test]
fn timers_run_out_where_nobody_else_keeps_them() {
    with("timeout:5ms", |steer| {
        steer.set_interval(at(0), Nanos::from_millis(100));
        steer.acquired(at(0), seat(5), None);
        steer.arrives(at(1), seat(6));
        let timer = steer.next_timer().unwrap();
        steer.look(Nanos(timer.0 - 1));
        assert!(!steer.asks());
        steer.look(timer);
        assert!(steer.asks());
    });
}

#[test]
fn one_that_ends_is_neither_next_nor_the_holder() {
    with("priority", |steer| {
        steer.acquired(at(0), seat(5), None);
        steer.arrives(at(1), seat(0));
        steer.left(at(2), seat(0));
        steer.released(at(3), seat(5), None);
        assert_eq!(steer.next(), None);
        steer.acquired(at(4), seat(6), None);
        steer.left(at(5), seat(6));
        assert_eq!(steer.holder(), None);
    });
}

/// Threads in any order, as a scheduler that knows nothing of the policy would have it: nobody is
/// lost, and the policy is told of each acquisition once.
#[test]
fn any_order_of_events_is_told_in_an_order_that_a_policy_understands() {
    for policy in ["adaptive", "priority", "timeout", "fifo", "mutex"] {
        let mut chosen = 0x2545_F491_4F6C_DD1Du64;
        let mut random = move |below: u32| {
            chosen ^= chosen << 13;
            chosen ^= chosen >> 7;
            chosen ^= chosen << 17;
            (chosen >> 33) as u32 % below
        };
        let log = with(policy, |steer| {
            for round in 0..5_000 {
                let now = at(7 * round);
                let one = seat(random(12));
                match random(7) {
                    5 => steer.handed(one),
                    6 => {
                        steer.released(now, one, None);
                        steer.passes(now, one);
                    }
                    0 | 1 => steer.arrives(now, one),
                    2 => steer.acquired(now, one, None),
                    3 => steer.released(now, one, None),
                    _ if random(50) == 0 => steer.left(now, one),
                    _ => steer.look(now),
                }
                assert_eq!(
                    steer.called,
                    steer.waiting.iter().filter(|one| one.state == CALLED).count()
                );
                assert_eq!(
                    steer.passed,
                    steer.waiting.iter().filter(|one| one.state == PASSED).count()
                );
            }
        });
        let mut holder = None;
        for one in log {
            let who = one.split("WaiterId(").nth(1).and_then(|rest| rest.split(')').next());
            if one.starts_with("Acquire") {
                assert_eq!(holder, None, "{policy}: two holders");
                holder = who.map(str::to_owned);
            } else if one.starts_with("Release") {
                assert_eq!(holder.take().as_deref(), who, "{policy}: not its holder's release");
            } else if one.starts_with("Arrive") {
                assert!(holder.is_some(), "{policy}: nobody holds it");
                assert_ne!(holder.as_deref(), who, "{policy}: the holder waits");
            }
        }
    }
}

/// As in `policy/tests/adaptive_woken.rs`; one that nobody knows has woken nobody.
#[test]
fn whoever_the_holder_itself_has_woken_does_not_ask_it() {
    for (by, asks) in [(5, false), (77, true)] {
        with("adaptive", |steer| {
            steer.acquired(at(0), seat(0), None);
            steer.released(at(10), seat(0), None);
            steer.acquired(at(20), seat(5), None);
            // It computes, and nothing is left of what it had earned.
            steer.released(at(50_000), seat(5), None);
            steer.acquired(at(50_001), seat(5), None);
            steer.woken(at(51_000), seat(0), WaiterId(by));
            steer.arrives(at(51_000), seat(0));
            assert_eq!(steer.asks(), asks, "woken by {by}");
            steer.look(at(56_100));
            assert!(steer.asks(), "its slice is over");
        });
    }
}
