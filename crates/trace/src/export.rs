//! Exporters: the events as a timeline for the viewers that people have.
//!
//! - [`page`]: packed for the page that `deconvoy report --html` makes;
//! - [`perfetto`]: Perfetto's own format, for traces of any size: <https://ui.perfetto.dev>;
//! - [`trace_event`]: JSON in Chrome's trace event format, which more viewers know, for small ones.

mod page;
mod perfetto;
mod timeline;
mod trace_event;

pub use page::page;
pub use perfetto::perfetto;
pub use trace_event::TraceEvents;

use crate::format::OTHERS;
use crate::read::{ThreadSums, is_ruby};

/// What a viewer shows a thread as.
fn thread_name(thread: &ThreadSums) -> String {
    match (thread.index, thread.name.as_str()) {
        (OTHERS, _) => "other threads".to_owned(),
        (_, "") => format!("thread {}", thread.native_id),
        (_, name) => name.to_owned(),
    }
}

/// What is done at a lock, in words.
struct Words {
    holds: &'static str,
    waits: &'static str,
    asks: &'static str,
    waiters: &'static str,
}

impl Words {
    /// Python's lock is the GIL, Ruby's the GVL.
    fn of(runtime: &str) -> Words {
        if is_ruby(runtime) {
            Words {
                holds: "holds the GVL",
                waits: "waits for the GVL",
                asks: "asks for the GVL",
                waiters: "threads that wait for the GVL",
            }
        } else {
            Words {
                holds: "holds the GIL",
                waits: "waits for the GIL",
                asks: "asks for the GIL",
                waiters: "threads that wait for the GIL",
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_called_as_its_users_call_it() {
        for (runtime, waits) in [
            ("3.11.7 (main, …) [GCC]", "waits for the GIL"),
            (
                "ruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]",
                "waits for the GVL",
            ),
        ] {
            assert_eq!(Words::of(runtime).waits, waits);
        }
    }
}
