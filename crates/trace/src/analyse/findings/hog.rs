//! The hog: a holder that does not heed drop requests, because it runs C code.

use crate::analyse::sweep::Hogging;
use crate::analyse::words::{self, length};

use super::{Context, Finding, FindingKind, most, names};

/// On a busy machine the system itself keeps a holder from running, for some tens of milliseconds
/// now and then. So it takes a longer one, or slow answers that are usual, or much of the time.
const HOG_LONGEST_NS: u64 = 100_000_000;
/// Of the thread's answers.
const HOG_USUAL_SHARE: f64 = 0.1;
const HOG_USUAL_TIMES: u64 = 3;
/// Of the time that the events cover.
const HOG_TIME_SHARE: f64 = 0.2;

impl Context<'_> {
    fn is_hog(&self, hogging: &Hogging) -> bool {
        let usual = hogging.times >= HOG_USUAL_TIMES
            && hogging.times as f64 >= hogging.answers as f64 * HOG_USUAL_SHARE;
        let covered_ns = self.covered_ns() as f64;
        let much = hogging.times > 0 && hogging.slow_ns as f64 >= covered_ns * HOG_TIME_SHARE;
        hogging.longest_ns >= HOG_LONGEST_NS || usual || much
    }

    /// The worst hog: by the time that it kept others waiting.
    pub(super) fn hog(&self) -> Option<Finding> {
        let (&thread, hogging) = self
            .sweep
            .hogging
            .iter()
            .filter(|(_, hogging)| self.is_hog(hogging))
            .max_by_key(|&(&thread, hogging)| (hogging.kept_ns, thread))?;
        let Hogging { times, longest_ns, kept_ns, before_ns, ref kept, .. } = *hogging;
        let victims = self.labels(most(kept));
        let blocker = self.labels.of(thread);
        let mut text = format!(
            "{} hogs the lock: {}{} it kept it for more than {} although asked to give it up, the \
             longest {}",
            blocker.label,
            words::of(times, "time", "times"),
            self.meanwhile(),
            length(self.sweep.deaf.slow_ns(thread)),
            length(longest_ns),
        );
        if !victims.is_empty() {
            text += &format!(
                ". That kept {} waiting, {} together, and {} before they asked",
                names(&victims),
                length(kept_ns),
                length(before_ns)
            );
        }
        text += match self.sweep.deaf.is(thread) {
            true => ". It runs C code that keeps the lock.",
            false => ". It runs C code that keeps the lock, or the system gave it no processor.",
        };
        let rest = "let it release the lock (Py_BEGIN_ALLOW_THREADS), give it less at a time, or \
                    move it to a process of its own";
        // Of a wait behind C code, a policy saves what lies before the request.
        let mend = match self.trace.about.stock && before_ns >= kept_ns / 4 {
            true => format!("{} asks at once; no policy can preempt C code: {rest}", self.run()),
            false => format!("no policy can preempt C code: {rest}"),
        };
        Some(Finding {
            kind: FindingKind::Hog,
            text,
            mend,
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
