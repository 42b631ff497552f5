//! What the simulator must show whatever it simulates: the same from the same seed, each policy's
//! events and actions as a fresh policy has them, and each design's pathology.

use deconvoy_mix::Mix;
use deconvoy_policy::{Action, Actions, Driver, Event, Nanos, Observer, Policy, Slot, Spec};
use deconvoy_sim::{Costs, Outcome, Placed, World, run};
use proptest::prelude::*;

const POLICIES: [&str; 7] =
    ["adaptive", "priority:io*=5", "timeout", "timer", "mutex:1ms", "fifo", "ticks"];

const SPINNERS: &str =
    "[[threads]]\nname = \"spin\"\ncount = 2\nloop = [{ compute = \"forever\" }]\n";

/// The messaging of the talk, with so many CPU-bound threads.
fn messaging(spinners: u32, messages: u32, seconds: u32) -> Mix {
    let spin = format!(
        "[[threads]]\nname = \"spin\"\ncount = {spinners}\nloop = [{{ compute = \"forever\" }}]\n"
    );
    let spin = if spinners == 0 { String::new() } else { spin };
    Mix::parse(&format!(
        r#"duration = "{seconds}s"
        {spin}
        [[threads]]
        name = "server"
        loop = [{{ receive = "request" }}, {{ compute = "1us" }}, {{ native = "2us" }}, {{ compute = "1us" }},
                {{ send = "head" }}, {{ compute = "1us" }}, {{ send = "body" }}, {{ compute = "1us" }}]
        [[threads]]
        name = "client"
        gil = false
        times = {messages}
        loop = [{{ send = "request" }}, {{ receive = "head" }}, {{ receive = "body" }}, {{ sleep = "1ms" }}]
        "#
    ))
    .unwrap()
}

fn simulate(policy: &str, mix: &Mix, cores: u32, costs: Costs, seed: u64) -> Outcome {
    run(&Spec::parse(policy).unwrap(), mix, World { cores, costs, seed }, ())
}

#[derive(Default)]
struct Log(Vec<(Nanos, Event, Vec<Action>)>);

impl Observer for &mut Log {
    fn event(&mut self, now: Nanos, event: Event) {
        self.0.push((now, event, Vec::new()));
    }
    fn action(&mut self, _: Nanos, action: Action) {
        self.0.last_mut().unwrap().2.push(action);
    }
}

impl Placed for &mut Log {}

#[test]
fn what_was_simulated_replays() {
    for policy in POLICIES {
        for cores in [1, 2, 8] {
            let mix = messaging(3, 40, 2);
            let spec = Spec::parse(policy).unwrap();
            let mut log = Log::default();
            run(&spec, &mix, World { cores, costs: Costs::default(), seed: 3 }, &mut log);
            let waits = log.0.iter().filter(|(_, event, _)| matches!(event, Event::Arrive { .. }));
            assert!(waits.count() > 40, "{policy}: without contention this proves nothing");
            let mut slots = vec![Slot::default(); mix.count() as usize];
            let mut fresh = spec.build(Driver { cores, counts_instructions: true }, &mut slots);
            for (now, event, said) in &log.0 {
                let mut actions = Actions::new();
                fresh.step(*now, *event, &mut actions);
                assert_eq!(actions.as_slice(), said, "{policy}@{cores}: {now:?} {event:?}");
            }
        }
    }
}

fn mixes() -> impl Strategy<Value = Mix> {
    let length = prop_oneof![
        Just("\"20us\"".to_owned()),
        Just("{ exponential = \"300us\" }".to_owned()),
        Just("{ uniform = [\"0us\", \"8ms\"] }".to_owned()),
        Just("{ pareto = [\"5us\", 1.3] }".to_owned()),
    ];
    let step = prop_oneof![
        3 => length.clone().prop_map(|it| format!("{{ compute = {it} }}")),
        3 => length.clone().prop_map(|it| format!("{{ block = {it} }}")),
        1 => length.clone().prop_map(|it| format!("{{ sleep = {it} }}")),
        1 => length.clone().prop_map(|it| format!("{{ native = {it} }}")),
        1 => length.prop_map(|it| format!("{{ hog = {it} }}")),
    ];
    let group = (1u32..6, prop::collection::vec(step, 1..5), -2i8..3, any::<bool>()).prop_map(
        |(count, steps, priority, spins)| {
            let last = if spins { ", { compute = \"forever\" }" } else { ", { block = \"1us\" }" };
            format!(
                "[[threads]]\nname = \"NAME\"\ncount = {count}\npriority = {priority}\nloop = [{}{last}]\n",
                steps.join(", ")
            )
        },
    );
    prop::collection::vec(group, 1..5).prop_map(|groups| {
        let numbered = groups.iter().enumerate();
        let named = numbered.map(|(number, one)| one.replace("NAME", &format!("io{number}")));
        Mix::parse(&format!("duration = \"300ms\"\n{}", named.collect::<String>())).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The simulator looks at its own rules at every event; here nothing may break them, and the same
    /// seed gives the same outcome to the last digit.
    #[test]
    fn any_workload_keeps_the_rules(
        mix in mixes(),
        cores in prop::sample::select(vec![1u32, 2, 3, 8, 64]),
        policy in prop::sample::select(&POLICIES[..]),
        costs in prop::sample::select(vec!["vm", "server", "2010"]),
        seed in any::<u64>(),
    ) {
        let costs = Costs::named(costs).unwrap();
        let one = simulate(policy, &mix, cores, costs, seed);
        let other = simulate(policy, &mix, cores, costs, seed);
        prop_assert_eq!(&one, &other, "not deterministic");
        let ran: u64 = one.groups.iter().map(|group| group.ran_ns).sum();
        prop_assert!(ran <= u64::from(cores) * one.elapsed_ns, "more than the cores have");
        let held: u64 = one.groups.iter().map(|group| group.held_ns).sum();
        prop_assert!(held <= one.elapsed_ns, "two had the lock at a time");
    }
}

fn answers_p50_ms(outcome: &Outcome) -> f64 {
    outcome.groups.last().unwrap().answers.p50_ns as f64 / 1e6
}

/// Slides 17, 19, 62, 69 and 72, on a machine of their time.
#[test]
fn each_design_shows_what_the_talk_says() {
    let costs = Costs::named("2010").unwrap();
    let p50 = |policy, spinners| {
        answers_p50_ms(&simulate(policy, &messaging(spinners, 200, 60), 4, costs, 1))
    };
    for policy in POLICIES {
        let alone = p50(policy, 0);
        assert!(alone < 0.2, "{policy}: {alone} ms alone");
    }
    let convoy = p50("timer", 1);
    assert!((30.0..45.0).contains(&convoy), "four ticks of 10 ms a message: {convoy} ms");
    let convoy = p50("timeout", 1);
    assert!((15.0..22.0).contains(&convoy), "four intervals of 5 ms a message: {convoy} ms");
    for policy in ["adaptive", "priority:server=1"] {
        let none = p50(policy, 1);
        assert!(none < 0.2, "{policy}: {none} ms");
    }
    // It starves: in a minute not one of ten messages a second comes through.
    let starved = simulate("mutex", &messaging(1, 1_000, 60), 8, costs, 1);
    assert!(starved.groups.last().unwrap().rounds < 600, "{:?}", starved.groups.last());
}

/// Slides 7, 10, 21 and 57: two threads slower than one where there are several cores, and more so
/// with a fair lock; hardly so on one core.
#[test]
fn ticks_battle_on_several_cores_and_less_on_one() {
    let costs = Costs::named("2010").unwrap();
    let count = |threads: u64, policy, cores| {
        let part = 500 / threads;
        let text = format!(
            "duration = \"1000s\"\n[[threads]]\nname = \"count\"\ncount = {threads}\ntimes = 1\nloop = [{{ compute = \"{part}ms\" }}]\n"
        );
        simulate(policy, &Mix::parse(&text).unwrap(), cores, costs, 1).elapsed_ns as f64
    };
    let slower = |policy, cores| count(2, policy, cores) / count(1, policy, cores);
    let (battle, one_core, fair) = (slower("ticks", 4), slower("ticks", 1), slower("fifo", 2));
    assert!(battle > 1.2, "a battle: {battle}");
    assert!(one_core < battle && one_core < 1.2, "less on one core: {one_core}");
    assert!(fair > 3.0 && fair > battle, "worse with a fair lock: {fair}");
    for policy in ["timeout", "adaptive", "timer"] {
        let ratio = slower(policy, 4);
        assert!(ratio < 1.05, "{policy}: {ratio}");
    }
}

#[test]
fn adaptive_shares_evenly_and_bounds_waits_on_any_number_of_cores() {
    for cores in [1, 2, 4, 16, 128] {
        let io = "[[threads]]\nname = \"io\"\ncount = 8\nloop = [{ block = { exponential = \"2ms\" } }, { compute = \"20us\" }]\n";
        let mix = Mix::parse(&format!("duration = \"5s\"\n{SPINNERS}{io}")).unwrap();
        let outcome = simulate("adaptive", &mix, cores, Costs::default(), 1);
        let (spin, io) = (&outcome.groups[0], &outcome.groups[1]);
        assert!(spin.jain > 0.99, "{cores} cores: {}", spin.jain);
        assert!(io.waits.p50_ns < 300_000, "{cores} cores: {:?}", io.waits);
        assert!(spin.longest_wait_ns < 100_000_000, "{cores} cores: {}", spin.longest_wait_ns);
    }
}

/// As `benchmarks/scale` has it. Handed on from one sleeper to the next, the lock would be idle most
/// of the time: those that are awake go first.
#[test]
fn adaptive_serves_many_io_threads_and_leaves_the_rest_to_those_that_compute() {
    for (cores, threads, costs) in [
        (8, 100, "vm"),
        (8, 1_000, "vm"),
        (128, 100, "vm"),
        (2, 1_000, "server"),
        (8, 1_000, "server"),
    ] {
        let away_us = 40 * threads;
        let mix = Mix::parse(&format!(
            "duration = \"2s\"\n{SPINNERS}[[threads]]\nname = \"io\"\ncount = {threads}\n\
             loop = [{{ block = {{ exponential = \"{away_us}us\" }} }}, {{ compute = \"20us\" }}]\n"
        ))
        .unwrap();
        let [ours, stock] = ["adaptive", "timeout"].map(|policy| {
            let outcome = simulate(policy, &mix, cores, Costs::named(costs).unwrap(), 1);
            let (spin, io) = (&outcome.groups[0], &outcome.groups[1]);
            let kept = spin.held_ns as f64 / (outcome.elapsed_ns - io.held_ns) as f64;
            (io.rounds as f64 / 2.0, io.waits.p50_ns, kept)
        });
        let what = format!("{cores} {threads} {costs}: {ours:?}, and stock {stock:?}");
        assert!(ours.0 > 23_000.0, "served: {what}");
        assert!(ours.1 < 100_000 && ours.1 * 100 < stock.1, "p50: {what}");
        assert!(ours.2 > stock.2 - 0.15, "kept: {what}");
    }
}
