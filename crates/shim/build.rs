//! Linking: a library that loads beside any glibc from 2.17 on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Before glibc 2.34 `dlsym` lives in libdl.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--no-as-needed,-l:libdl.so.2,--as-needed");
    // Every symbol is resolved at load: a missing one shows at once, and no hot path binds lazily.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    println!("cargo::rustc-cdylib-link-arg=-lc");
}
