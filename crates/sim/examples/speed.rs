//! How many events a second the simulator makes: `cargo run --release -p deconvoy-sim --example speed`.

use std::time::Instant;

use deconvoy_mix::Mix;
use deconvoy_policy::Spec;
use deconvoy_sim::{Costs, World, run};

const SPIN: &str = "[[threads]]\nname = \"spin\"\ncount = 4\nloop = [{ compute = \"forever\" }]\n";

fn mix(io: u32, duration: &str) -> Mix {
    let io = format!(
        "[[threads]]\nname = \"io\"\ncount = {io}\n\
         loop = [{{ block = {{ exponential = \"1ms\" }} }}, {{ compute = \"5us\" }}]\n"
    );
    Mix::parse(&format!("duration = \"{duration}\"\n{SPIN}{io}")).expect("it is written here")
}

fn main() {
    println!(
        "{:10} {:>6} {:>8} {:>12} {:>9} {:>12}",
        "policy", "cores", "threads", "events", "s", "events/s"
    );
    for (cores, io, duration) in [
        (2, 4, "60s"),
        (8, 30, "20s"),
        (64, 1_000, "10s"),
        (128, 10_000, "5s"),
        (1_024, 99_000, "2s"),
    ] {
        for policy in ["adaptive", "timeout", "ticks", "fifo"] {
            let mix = mix(io, duration);
            let spec = Spec::parse(policy).expect("a policy");
            let world = World { cores, costs: Costs::default(), seed: 1 };
            let begun = Instant::now();
            let outcome = run(&spec, &mix, world, ());
            let elapsed = begun.elapsed().as_secs_f64();
            let events = outcome.totals.events;
            println!(
                "{policy:10} {cores:>6} {:>8} {events:>12} {elapsed:>9.3} {:>12.0}",
                mix.count(),
                events as f64 / elapsed
            );
        }
    }
}
