//! Prints what `deconvoy doctor --calibrate` measures.
fn main() {
    for (name, values) in deconvoy_lab::calibrate::measure(|_| {}).expect("sockets") {
        println!("{name} = {values:?}");
    }
}
