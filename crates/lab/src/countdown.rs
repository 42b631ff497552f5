//! `countdown`: one loop, then split over threads (`scenarios/countdown`).

use std::time::Instant;

use crate::vm::{COUNT_DOWN, Shared, Thread};
use crate::{AnyGil, Gil, with_gil};

/// What a run yields.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ran {
    pub elapsed_s: f64,
    /// How often the lock went from one thread to another; `None`: a rival does not say.
    pub gil_switches: Option<u64>,
}

/// Counts `work` down: in the calling thread (`workers` 0), or split over threads.
pub fn run(gil: &AnyGil, workers: u32, work: i64) -> Ran {
    let elapsed_s = with_gil!(gil, gil => measure(gil, workers, work));
    let gil_switches = match gil {
        AnyGil::Policy(gil) => Some(gil.switches()),
        _ => None,
    };
    Ran { elapsed_s, gil_switches }
}

fn measure<G: Gil>(gil: &G, workers: u32, work: i64) -> f64 {
    let begun = Instant::now();
    if workers == 0 {
        count(gil, "main", work);
    } else {
        let part = work / i64::from(workers);
        std::thread::scope(|scope| {
            for number in 0..workers {
                let name = format!("count-{number}");
                scope.spawn(move || count(gil, &name, part));
            }
        });
    }
    begun.elapsed().as_secs_f64()
}

fn count<G: Gil>(gil: &G, name: &str, work: i64) {
    let me = gil.start_thread(name);
    let shared = Shared::default();
    let mut thread = Thread::new(gil, me, &shared, ());
    thread.set_local(0, work);
    thread.run(COUNT_DOWN);
    gil.end_thread(me);
}
