//! Prints the events of a trace, one a line: `cargo run -p deconvoy-trace --example dump FILE`.
use deconvoy_trace::read::Trace;
fn main() {
    let path = std::env::args().nth(1).expect("a trace");
    let trace = Trace::open(std::path::Path::new(&path)).expect("a trace");
    for e in &trace.events {
        println!("{:>12} {:<9} t{} {}", e.at_ns, format!("{:?}", e.kind), e.thread, e.argument);
    }
}
