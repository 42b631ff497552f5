//! What an event costs: `cargo run --release -p deconvoy-trace --example cost`.
//!
//! A thread takes and gives up a lock that nobody else wants, and both are recorded, each with its
//! reading of the clock, as in the preloaded library. Prints the median and the range of the
//! rounds, in nanoseconds an event.

#[path = "../tests/build/mod.rs"]
mod build;

use std::time::Instant;

const EVENTS: u32 = 200_000;
const ROUNDS: usize = 31;

fn main() {
    let mut tape = build::Tape::new(build::stock(), 1 << 18);
    let thread = tape.thread("one");
    let start = Instant::now();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..EVENTS / 2 {
                tape.now = build::START_NS + start.elapsed().as_nanos() as u64;
                tape.acquire(thread);
                tape.now = build::START_NS + start.elapsed().as_nanos() as u64;
                tape.release(thread);
            }
            begun.elapsed().as_nanos() as f64 / f64::from(EVENTS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    let (least, most) = (rounds[0], rounds[ROUNDS - 1]);
    println!("{:.1} ns an event, {least:.1} to {most:.1} over {ROUNDS} rounds", rounds[ROUNDS / 2]);
}
