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
use crate::read::ThreadSums;

/// What a viewer shows a thread as.
fn thread_name(thread: &ThreadSums) -> String {
    match (thread.index, thread.name.as_str()) {
        (OTHERS, _) => "other threads".to_owned(),
        (_, "") => format!("thread {}", thread.native_id),
        (_, name) => name.to_owned(),
    }
}
