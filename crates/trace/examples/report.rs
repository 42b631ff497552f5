//! Prints the report of a trace file as JSON: `cargo run --example report FILE`.

use std::error::Error;
use std::path::Path;

use deconvoy_trace::{analyse, read::Trace, replay};

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let trace = Trace::open(Path::new(&path)).map_err(|error| format!("{path}: {error}"))?;
        let begun = std::time::Instant::now();
        let report = analyse::report(&trace);
        eprintln!("{} events in {:?}", trace.events.len(), begun.elapsed());
        println!("{}", serde_json::to_string_pretty(&report)?);
        match replay::check(&trace) {
            Ok(replayed) => eprintln!("replays: {replayed:?}"),
            Err(divergence) => eprintln!("does not replay: {divergence}"),
        }
    }
    Ok(())
}
