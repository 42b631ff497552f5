//! What is said when something here panics, which ends the process.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

use pyo3::prelude::*;

thread_local! {
    static NOTE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What is said after the message of a panic in this thread; empty: nothing.
#[pyfunction]
pub fn note_for_crashes(note: String) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tells = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            tells(info);
            NOTE.with_borrow(|note| {
                if !note.is_empty() {
                    eprintln!("{note}");
                }
            });
        }));
    });
    NOTE.set(note);
}
