//! What it costs to read a value that all threads share: `cargo run --release -p deconvoy-pool --example
//! global`. Reads a second of all threads together; medians of rounds that are interleaved.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, RwLock};
use std::time::{Duration, Instant};

use deconvoy_pool::ProcessGlobal;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(200);

/// Reads a second, of so many threads that each read by what `reader` gives them.
fn rate<R: FnMut() -> usize>(threads: usize, reader: impl Fn() -> R + Sync) -> f64 {
    let (over, begin) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let counts: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut read = reader();
                    begin.wait();
                    let mut count = 0u64;
                    while !over.load(Ordering::Relaxed) {
                        for _ in 0..64 {
                            black_box(read());
                        }
                        count += 64;
                    }
                    count
                })
            })
            .collect();
        begin.wait();
        let begun = Instant::now();
        std::thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
        let sum: u64 = counts.into_iter().map(|count| count.join().unwrap_or(0)).sum();
        sum as f64 / begun.elapsed().as_secs_f64()
    })
}

fn main() {
    let text = String::from("17");
    let global = ProcessGlobal::new(text.clone());
    let mutex = Mutex::new(text.clone());
    let shared = RwLock::new(text);
    let mut rates = vec![Vec::new(); 6];
    for _ in 0..ROUNDS {
        for (place, threads) in [1, 2].into_iter().enumerate() {
            let by_epoch = || {
                let mut reader = global.reader();
                move || reader.get().len()
            };
            rates[place].push(rate(threads, by_epoch));
            rates[2 + place].push(rate(threads, || || mutex.lock().map_or(0, |text| text.len())));
            rates[4 + place].push(rate(threads, || || shared.read().map_or(0, |text| text.len())));
        }
    }
    println!("| million reads a second | 1 thread | 2 threads |\n|---|---|---|");
    for (name, pair) in ["ProcessGlobal", "Mutex", "RwLock"].into_iter().zip(rates.chunks_mut(2)) {
        let mut middle = pair.iter_mut().map(|rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2] / 1e6
        });
        let (one, two) = (middle.next().unwrap_or(0.0), middle.next().unwrap_or(0.0));
        println!("| {name} | {one:.1} | {two:.1} |");
    }
}
