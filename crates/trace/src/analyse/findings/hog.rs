//! The hog: a holder that does not heed drop requests, because it runs C code.

use crate::analyse::sweep::{Hogging, slow_answer_ns};
use crate::analyse::words::{self, length};

use super::{Context, Finding, FindingKind, most, names};

/// A single slow answer that is worth a word, and how often a lesser one has to occur: a busy
/// machine's scheduler makes some as well.
const HOG_LONGEST_NS: u64 = 30_000_000;
const HOG_LEAST_TIMES: u64 = 5;

impl Context<'_> {
    /// The worst hog: by the time that it kept others waiting.
    pub(super) fn hog(&self) -> Option<Finding> {
        let (&thread, hogging) = self
            .sweep
            .hogging
            .iter()
            .filter(|(_, hogging)| {
                hogging.longest_ns >= HOG_LONGEST_NS || hogging.times >= HOG_LEAST_TIMES
            })
            .max_by_key(|&(&thread, hogging)| (hogging.kept_ns, thread))?;
        let Hogging { times, longest_ns, kept_ns, ref kept } = *hogging;
        let victims = self.labels(most(kept));
        let blocker = self.labels.of_thread(thread);
        let mut text = format!(
            "{} kept the lock although asked for it: {}{} for more than {}, the longest {}",
            blocker.label,
            words::of(times, "time", "times"),
            self.meanwhile(),
            length(slow_answer_ns(self.interval_ns)),
            length(longest_ns),
        );
        if !victims.is_empty() {
            text +=
                &format!(". That kept {} waiting, {} together", names(&victims), length(kept_ns));
        }
        text += ". It runs C code that keeps the lock, or the system gave it no processor.";
        Some(Finding {
            kind: FindingKind::Hog,
            text,
            mend:
                "no policy can preempt C code: let it release the lock (Py_BEGIN_ALLOW_THREADS), \
                   give it less at a time, or move it to a process of its own"
                    .to_owned(),
            lost_ns: kept_ns,
            victims,
            blockers: vec![blocker],
            times,
            median_ns: 0,
            longest_ns,
            per_s: self.per_s(times),
        })
    }
}
