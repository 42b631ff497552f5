//! Each finding in a trace that has it, and not in those that look alike.

mod build;

use build::{INTERVAL, MS, Tape, US, stock, under};
use deconvoy_trace::analyse::{Finding, FindingKind, Report, ThreadReport, report};

/// The only finding.
fn only(report: &Report) -> &Finding {
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    &report.findings[0]
}

/// A server that needs the lock for 12 us, beside a thread that computes; `calls` blocking calls.
fn messaging(tape: &mut Tape, calls: u32, wait: u64) -> (u16, u16) {
    let (spin, server) = (tape.thread("spin-0"), tape.thread("server"));
    tape.acquire(spin).pass(MS);
    for _ in 0..calls {
        tape.forced_switch(spin, server, wait);
        tape.arrive(spin).pass(12 * US).release(server).pass(5 * US).acquire(spin).pass(100 * US);
    }
    (spin, server)
}

#[test]
fn a_convoy_is_found() {
    let mut tape = Tape::stock();
    let (spin, server) = messaging(&mut tape, 400, INTERVAL);
    let report = report(&tape.trace());
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Convoy);
    assert_eq!(
        finding.text,
        "\"server\" waited 400 times about one switch interval (5.0 ms) behind \"spin-0\", which \
         computes: 2.0 s of its 2.1 s. It needs the lock for 12 us at a time."
    );
    assert_eq!(finding.mend, "deconvoy run -- python3 server.py --workers 1");
    assert_eq!((finding.victims[0].index, finding.blockers[0].index), (server, spin));
    assert_eq!(finding.times, 400);
    let pair = &report.pairs[0];
    assert_eq!((pair.waiter.index, pair.blocker.index), (server, spin));
    assert_eq!((pair.waits, pair.median_ns), (400, INTERVAL + 2 * US));
}

#[test]
fn the_same_under_a_policy_that_preempts_is_none() {
    let mut tape = Tape::new(under("adaptive"), 1 << 18);
    messaging(&mut tape, 400, 10 * US);
    assert_eq!(only(&report(&tape.trace())).kind, FindingKind::Nothing);
}

#[test]
fn a_few_waits_at_the_start_are_no_convoy() {
    let mut tape = Tape::stock();
    let (spin, _) = messaging(&mut tape, 5, INTERVAL);
    tape.pass(1_000 * MS).release(spin);
    assert_eq!(only(&report(&tape.trace())).kind, FindingKind::Nothing);
}

#[test]
fn a_convoy_that_has_left_the_table_but_for_the_end_says_so() {
    let mut tape = Tape::new(stock(), 256);
    messaging(&mut tape, 400, INTERVAL);
    let report = report(&tape.trace());
    assert!(!report.coverage.whole && report.coverage.from_ns > 0);
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Convoy);
    assert!(finding.text.contains(" in the last "), "{}", finding.text);
}

/// Two threads that compute take turns.
fn sharing(tape: &mut Tape, switches: u32, interval: u64) {
    let pair = [tape.thread("spin-0"), tape.thread("spin-1")];
    tape.acquire(pair[0]);
    for turn in 0..switches as usize {
        tape.forced_switch(pair[turn % 2], pair[(turn + 1) % 2], interval);
    }
}

#[test]
fn sharing_the_processor_is_no_convoy() {
    let mut tape = Tape::stock();
    sharing(&mut tape, 200, INTERVAL);
    let report = report(&tape.trace());
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Nothing);
    assert!(finding.text.starts_with("2 threads compute and share the lock"), "{}", finding.text);
    assert!(report.threads.iter().all(|thread| thread.computes));
}

#[test]
fn switching_all_the_time_is_a_battle() {
    let mut tape = Tape::stock();
    tape.recorder().interval(tape.now, 0, 0, 50 * US);
    sharing(&mut tape, 20_000, 50 * US);
    let report = report(&tape.trace());
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Battle);
    assert!(finding.text.contains("\"spin-0\""), "{}", finding.text);
    assert!(finding.mend.contains("sys.setswitchinterval"), "{}", finding.mend);
    assert!(finding.per_s > 10_000.0);
}

#[test]
fn waking_up_in_vain_is_a_battle() {
    let mut tape = Tape::stock();
    let (spin, other) = (tape.thread("spin-0"), tape.thread("other"));
    tape.acquire(spin).arrive(other);
    for _ in 0..5_000 {
        // The releaser takes the lock back before the one that it woke is there.
        tape.pass(100 * US).release(spin).pass(US).acquire(spin).pass(30 * US).arrive(other);
    }
    tape.pass(100 * US).release(spin).acquire(other);
    let report = report(&tape.trace());
    let battle = report.findings.iter().find(|finding| finding.kind == FindingKind::Battle);
    assert!(battle.is_some_and(|battle| battle.times == 5_000), "{:#?}", report.findings);
}

#[test]
fn c_code_that_keeps_the_lock_is_a_hog() {
    let mut tape = Tape::stock();
    let (regex, server) = (tape.thread("regex"), tape.thread("server"));
    for _ in 0..3 {
        tape.acquire(regex).pass(MS).arrive(server).pass(INTERVAL).ask(server);
        let asked = tape.now;
        tape.pass(80 * MS).drop_on_request(regex, asked).pass(10 * US).acquire(server);
        tape.pass(20 * US).release(server).pass(10 * MS);
    }
    let report = report(&tape.trace());
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Hog);
    assert_eq!((finding.times, finding.longest_ns), (3, 80 * MS));
    assert_eq!(finding.lost_ns, 240 * MS);
    assert!(finding.text.contains("kept \"server\" waiting, 240 ms together"), "{}", finding.text);
}

/// A regular expression of 13 ms, again and again: it is asked after 5 ms, and does not hear it.
#[test]
fn c_code_of_a_few_intervals_is_a_hog_and_no_convoy() {
    for policy in ["stock", "adaptive"] {
        let stock = policy == "stock";
        let mut tape = if stock { Tape::stock() } else { Tape::new(under(policy), 1 << 16) };
        let patience = if stock { INTERVAL } else { 100 * US };
        let (regex, server) = (tape.thread("regex"), tape.thread("server"));
        tape.acquire(regex);
        for _ in 0..100 {
            tape.pass(MS).arrive(server).pass(patience).ask(server);
            let asked = tape.now;
            tape.pass(12 * MS - patience).drop_on_request(regex, asked);
            tape.pass(10 * US).acquire(server).arrive(regex).pass(12 * US).release(server);
            tape.pass(5 * US).acquire(regex);
        }
        let report = report(&tape.trace());
        let finding = only(&report);
        assert_eq!(finding.kind, FindingKind::Hog, "{}", finding.text);
        let says = "\"regex\" hogs the lock: 100 times it kept it for more than 1.0 ms although";
        assert!(finding.text.starts_with(says), "{}", finding.text);
        assert!(finding.text.ends_with("It runs C code that keeps the lock."), "{}", finding.text);
        let before = if stock { "and 500 ms before they asked" } else { "and 10 ms before" };
        assert!(finding.text.contains(before), "{}", finding.text);
        let asks = format!("deconvoy run -- {} asks at once", "python3 server.py --workers 1");
        let mend = if stock { asks.as_str() } else { "no policy can preempt C code" };
        assert!(finding.mend.starts_with(mend), "{}", finding.mend);
    }
}

/// Beside a build the system keeps a holder of bytecode from answering, most of the times.
#[test]
fn a_busy_machine_makes_no_hog() {
    let mut tape = Tape::stock();
    let (spin, server) = (tape.thread("spin"), tape.thread("server"));
    tape.acquire(spin).pass(MS);
    for turn in 0..200 {
        tape.arrive(server).pass(INTERVAL).ask(server);
        let asked = tape.now;
        tape.pass(if turn % 10 == 0 { 4 * US } else { 2_800 * US }).drop_on_request(spin, asked);
        tape.pass(10 * US).acquire(server).arrive(spin).pass(12 * US).release(server);
        tape.pass(5 * US).acquire(spin).pass(100 * US);
    }
    assert_eq!(only(&report(&tape.trace())).kind, FindingKind::Convoy);
}

/// A thread for each request waits but a few times; all of them together are the victim.
#[test]
fn threads_of_one_kind_are_one_victim() {
    let mut tape = Tape::stock();
    let spin = tape.thread("spin");
    tape.acquire(spin).pass(MS);
    for request in 1..=40 {
        let server = tape.thread(&format!("Thread-{request} (serve)"));
        for _ in 0..3 {
            tape.forced_switch(spin, server, INTERVAL);
            tape.arrive(spin).pass(12 * US).release(server).pass(5 * US).acquire(spin);
            tape.pass(100 * US);
        }
        tape.recorder().end_thread(tape.now, server);
    }
    let report = report(&tape.trace());
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Convoy);
    let says = "40 threads \"Thread-* (serve)\" waited 120 times about one switch interval";
    assert!(finding.text.starts_with(says), "{}", finding.text);
    assert_eq!(finding.victims.len(), 1);
    assert_eq!((report.threads.len(), report.kinds.len(), report.pairs.len()), (41, 2, 2));
    let kind = report.kinds.iter().find(|row| row.count == 40).unwrap();
    let sum = |number: fn(&ThreadReport) -> u64| {
        report.threads.iter().filter(|row| row.thread.index != spin).map(number).sum::<u64>()
    };
    assert_eq!((kind.waits, kind.acquires), (120, 120));
    assert_eq!(kind.holding_ns, sum(|row| row.holding_ns));
    assert_eq!(kind.waiting_ns, sum(|row| row.waiting_ns));
    assert!(kind.wait.exact && kind.wait.p50_ns == INTERVAL + 12 * US, "{:?}", kind.wait);
}

#[test]
fn a_rule_that_fits_nobody_is_named() {
    let mut tape = Tape::new(under("priority:sever=5,spin-*=-1"), 1 << 16);
    messaging(&mut tape, 400, 10 * US);
    assert_eq!(report(&tape.trace()).process.unmatched, ["sever"]);
}

/// Names that differ in digits only, but one pool computes and the other one does not.
#[test]
fn a_pool_that_computes_is_not_of_one_kind_with_a_pool_that_does_not() {
    let mut tape = Tape::stock();
    let pool = |tape: &mut Tape, pool: usize| -> Vec<u16> {
        (0..9).map(|n| tape.thread(&format!("ThreadPoolExecutor-{pool}_{n}"))).collect()
    };
    let (compute, serve) = (pool(&mut tape, 0), pool(&mut tape, 1));
    let mut spin = compute[0];
    tape.acquire(spin).pass(MS);
    for turn in 0..360 {
        let (next, server) = (compute[turn % 9], serve[turn % 9]);
        tape.forced_switch(spin, server, INTERVAL);
        tape.arrive(spin).arrive(next).pass(12 * US).release(server).pass(5 * US).acquire(next);
        tape.pass(100 * US);
        spin = next;
    }
    let report = report(&tape.trace());
    let labels: Vec<_> = report.kinds.iter().map(|row| row.thread.label.as_str()).collect();
    let pool = |number| format!("9 threads \"ThreadPoolExecutor-{number}_*\"");
    assert_eq!(labels, [pool(0), pool(1)]);
    let finding = &report.findings[0];
    assert_eq!(finding.kind, FindingKind::Convoy);
    assert_eq!((finding.victims[0].index, finding.blockers[0].index), (serve[0], compute[0]));
    assert!(finding.text.contains(", which compute: "), "{}", finding.text);
}

#[test]
fn never_getting_a_turn_is_starvation() {
    let mut tape = Tape::new(under("priority:high=5"), 1 << 16);
    tape.recorder().interval(tape.now, 0, 0, INTERVAL);
    let (high, low) = (tape.thread("high"), tape.thread("low"));
    tape.acquire(low).pass(2 * MS).release(low).acquire(high).arrive(low);
    for _ in 0..500 {
        tape.pass(4 * MS).release(high).pass(5 * US).acquire(high);
    }
    tape.release(high).acquire(low).pass(2 * MS).release(low);
    let report = report(&tape.trace());
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Starvation);
    assert_eq!(finding.victims[0].index, low);
    assert_eq!(finding.blockers[0].index, high);
    assert!(finding.text.starts_with("\"low\" starves: it waited 2.0 s"), "{}", finding.text);
    assert_eq!(finding.mend, "deconvoy run --policy adaptive -- python3 server.py --workers 1");
}

#[test]
fn a_waiter_that_the_system_keeps_from_asking_does_not_starve() {
    let mut tape = Tape::stock();
    let (spin, late) = (tape.thread("spin"), tape.thread("late"));
    tape.acquire(late).pass(US).release(late).acquire(spin).arrive(late);
    // Its timed wait of 5 ms ends after 300 ms.
    tape.pass(300 * MS).ask(late);
    let asked = tape.now;
    tape.pass(2 * US).drop_on_request(spin, asked).acquire(late).pass(US).release(late);
    assert_eq!(only(&report(&tape.trace())).kind, FindingKind::Nothing);
}

#[test]
fn an_occasional_slow_answer_is_no_hog() {
    let mut tape = Tape::stock();
    let (spin, server) = messaging(&mut tape, 100, 20 * US);
    tape.arrive(server).pass(INTERVAL).ask(server);
    let asked = tape.now;
    // The system ran something else.
    tape.pass(40 * MS).drop_on_request(spin, asked).acquire(server).pass(US).release(server);
    tape.acquire(spin).pass(1_000 * MS).release(spin);
    assert_eq!(only(&report(&tape.trace())).kind, FindingKind::Nothing);
}

#[test]
fn threads_that_block_are_fine() {
    let mut tape = Tape::stock();
    let threads = [tape.thread("io"), tape.thread("io"), tape.thread("io")];
    for turn in 0..300 {
        let (first, second) = (threads[turn % 3], threads[(turn + 1) % 3]);
        tape.acquire(first).pass(10 * US).arrive(second).pass(10 * US).release(first);
        tape.pass(20 * US).acquire(second).pass(15 * US).release(second).pass(2 * MS);
    }
    let report = report(&tape.trace());
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Nothing);
    assert!(
        finding.text.starts_with("Nothing wrong: the longest wait was 30 us"),
        "{}",
        finding.text
    );
    // Namesakes can be told apart.
    assert_eq!(report.threads[0].thread.label.matches('(').count(), 1);
}

#[test]
fn an_empty_trace_has_a_report() {
    let tape = Tape::new(stock(), 256);
    let report = report(&tape.trace());
    assert_eq!(only(&report).kind, FindingKind::Nothing);
    assert_eq!(report.process.interval_ns, INTERVAL);
    assert_eq!(report.process.policy, "stock");
}
