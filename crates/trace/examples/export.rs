//! Exports a trace: `cargo run --example export FILE OUT.pftrace OUT.json`.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use deconvoy_trace::{export, read::Trace};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, perfetto, json] = arguments.as_slice() else {
        return Err("usage: export FILE OUT.pftrace OUT.json".into());
    };
    let trace = Trace::open(Path::new(file))?;
    export::perfetto(&trace, &mut BufWriter::new(File::create(perfetto)?))?;
    export::trace_event(&trace, &mut BufWriter::new(File::create(json)?))?;
    Ok(())
}
