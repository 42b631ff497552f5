use super::*;

const LOOP: &str = "[[threads]]\nname = \"a\"\n";

#[test]
fn a_workload_is_read() {
    let mix = Mix::parse(
        r#"
        about = "an echo server"
        duration = "2s"
        [[threads]]
        name = "spin"
        count = 3
        loop = [{ compute = "forever" }]
        [[threads]]
        name = "server"
        priority = 5
        loop = [
            { receive = "requests" },
            { compute = { uniform = ["1us", "2us"] } },
            { block = { lognormal = ["1.5ms", 0.5] } },
            { send = "replies" },
        ]
        [[threads]]
        name = "client"
        gil = false
        times = 100
        loop = [{ send = "requests" }, { receive = "replies" }, { sleep = "1ms" }]
        "#,
    )
    .unwrap();
    assert_eq!((mix.count(), mix.duration), (5, Time(2_000_000_000)));
    assert_eq!(mix.threads[0].steps, [Step::Compute(Amount::Forever)]);
    let uniform = Distribution::Uniform(Time(1_000), Time(2_000));
    assert_eq!(mix.threads[1].steps[1], Step::Compute(Amount::Of(uniform)));
    let lognormal = Distribution::LogNormal(Time(1_500_000), 0.5);
    assert_eq!(mix.threads[1].steps[2], Step::Block(lognormal));
    assert_eq!(mix.channels().into_iter().collect::<Vec<_>>(), [("replies", 1), ("requests", 0)]);
    assert_eq!((mix.threads[2].gil, mix.threads[2].times), (false, Some(100)));
}

#[test]
fn a_mistake_is_named() {
    for (text, says) in [
        ("threads = []", "a mix needs threads: [[threads]] with a count of 1 or more"),
        ("", "a mix needs threads: [[threads]] with a count of 1 or more"),
        ("\n[[threads]]\nname = \"a\"", "line 2: `loop` is missing"),
        (
            &format!("{LOOP}colour = 1"),
            "line 3: there is no `colour`; there are `name`, `count`, `priority`, `gil`, `times`, `after`, `loop`",
        ),
        (
            &format!("{LOOP}count = -1"),
            "line 3: integer `-1`, where a whole number from 0 on belongs",
        ),
        (
            &format!("{LOOP}loop = [{{ block = {{ uniform = [\"1us\"] }} }}]"),
            "line 3: not of length 1: there must be two, as in [\"1us\", 2]",
        ),
        (
            &format!("{LOOP}loop = [{{ sleep = \"1us\", block = \"1us\" }}]"),
            "line 3: a step does one thing; write two as { … }, { … }",
        ),
        (
            &format!("{LOOP}count = 0\nloop = [{{ compute = \"1us\" }}]"),
            "a mix needs threads: [[threads]] with a count of 1 or more",
        ),
        (
            &format!("{LOOP}count = 200000\nloop = [{{ compute = \"1us\" }}]"),
            "200000 threads are more than 100000",
        ),
        (
            &format!("{LOOP}loop = [{{ compute = \"-1us\" }}]"),
            "line 3: \"-1us\" is not a time; write one as 5us, 1.5ms or 2s",
        ),
        (
            &format!("{LOOP}loop = [{{ block = {{ gamma = \"1us\" }} }}]"),
            "line 3: no distribution \"gamma\"; there are uniform, exponential, lognormal, pareto, and a plain time",
        ),
        (
            &format!("{LOOP}loop = [{{ block = {{ pareto = [\"1us\", 0.5] }} }}]"),
            "line 3: pareto: the exponent must be more than 1",
        ),
        (&format!("{LOOP}loop = []"), "a: its loop is empty"),
        (
            &format!("{LOOP}loop = [{{ sleep = \"1us\" }}]\n{LOOP}loop = [{{ sleep = \"1us\" }}]"),
            "a: two groups have this name",
        ),
        (
            "[[threads]]\nname = \"b\"\ncount = 0\nloop = []\n[[threads]]\nname = \"a\"\nloop = []",
            "b: count must be 1 or more",
        ),
        (
            &format!("{LOOP}loop = [{{ compute = \"0us\" }}]"),
            "a: its loop takes no time and has no end",
        ),
        (
            &format!("{LOOP}loop = [{{ compute = \"forever\" }}, {{ sleep = \"1us\" }}]"),
            "a: nothing comes after compute = \"forever\"",
        ),
        (
            &format!("{LOOP}gil = false\nloop = [{{ compute = \"1us\" }}]"),
            "a: without the lock it runs native code only",
        ),
        (&format!("{LOOP}loop = [{{ receive = \"x\" }}]"), "nobody sends to the channel \"x\""),
        (
            &format!("{LOOP}loop = [{{ yawn = \"1us\" }}]"),
            "line 3: there is no `yawn`; there are `compute`, `hog`, `native`, `block`, `sleep`, `send`, `receive`",
        ),
    ] {
        assert_eq!(Mix::parse(text).unwrap_err().to_string(), says, "{text}");
    }
}

#[test]
fn what_is_drawn_has_the_mean_that_is_asked_for() {
    let mut random = rand_distr_tests();
    let ms = Time(1_000_000);
    for (distribution, mean, within) in [
        (Distribution::Constant(ms), 1e6, 0.0),
        (Distribution::Uniform(Time(0), ms), 5e5, 0.02),
        (Distribution::Exponential(ms), 1e6, 0.03),
        (Distribution::LogNormal(ms, 0.5), 1e6 * (0.125f64).exp(), 0.03),
        (Distribution::Pareto(ms, 3.0), 1.5e6, 0.03),
    ] {
        let sum: f64 = (0..20_000).map(|_| distribution.draw(&mut random) as f64).sum();
        let found = sum / 20_000.0;
        assert!((found - mean).abs() <= within * mean, "{distribution:?}: {found}");
    }
}

fn rand_distr_tests() -> impl rand::RngCore {
    <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(1)
}
