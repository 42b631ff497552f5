//! Linking: a library that loads beside any glibc from 2.17 on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Every symbol is resolved at load: a missing one shows at once, and no hot path binds lazily.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    // Few segments: each costs every program that is started some microseconds. Nothing is made
    // read-only after relocation: the pointers that calls go through are found later anyway.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,noseparate-code,-z,norelro");
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    println!("cargo::rustc-cdylib-link-arg=-lc");
}
