//! What an uncontended acquisition and release cost, and a hand-off between two threads that both
//! run, for every lock: `cargo run --release -p deconvoy-lab --example lock_cost`.
//!
//! Rounds are interleaved; medians over them, with the least and the most.

use std::time::Instant;

use deconvoy_lab::{AnyGil, Choice, Gil, calibrate, with_gil};

const LOCKS: [&str; 11] = [
    "adaptive",
    "timeout",
    "priority",
    "timer",
    "mutex",
    "fifo",
    "ticks",
    "parking_lot",
    "parking_lot_fair",
    "std",
    "pthread",
];
const ROUNDS: usize = 15;
const PAIRS: u32 = 1_000_000;

fn uncontended<G: Gil>(gil: &G) -> f64 {
    let me = gil.start_thread("one");
    drop(gil.acquire(me));
    let begun = Instant::now();
    for _ in 0..PAIRS {
        let held = gil.acquire(me);
        std::hint::black_box(&held);
        gil.release(held);
    }
    begun.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

fn shown(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let (low, high) = (times[0], times[times.len() - 1]);
    format!("{:9.1} [{low:.1}, {high:.1}]", times[times.len() / 2])
}

fn main() {
    let mut alone = vec![Vec::new(); LOCKS.len()];
    let mut handed = vec![Vec::new(); LOCKS.len()];
    for _ in 0..ROUNDS {
        for (place, text) in LOCKS.into_iter().enumerate() {
            let choice = Choice::parse(text).expect("a lock");
            let made = || AnyGil::new(choice, 4, None).expect("no trace is wanted");
            alone[place].push(with_gil!(&made(), gil => uncontended(gil)));
            handed[place]
                .push(with_gil!(&made(), gil => calibrate::median(calibrate::hand_offs(gil))));
        }
    }
    println!("{:18} {:>28} {:>32}", "lock", "uncontended pair, ns", "hand-off, ns");
    for (place, text) in LOCKS.into_iter().enumerate() {
        let (alone, handed) =
            (std::mem::take(&mut alone[place]), std::mem::take(&mut handed[place]));
        println!("{text:18} {:>28} {:>32}", shown(alone), shown(handed));
    }
}
