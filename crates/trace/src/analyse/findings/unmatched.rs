//! A rule of the policy `priority` that fits no thread: a name that is misspelt, or not there.

use deconvoy_policy::Spec;

use super::{Context, Finding, FindingKind, names};
use crate::analyse::words::list;

impl Context<'_> {
    pub(super) fn unmatched(&self) -> Option<Finding> {
        let about = &self.trace.about;
        // The names of threads whose records were given away are not known any more.
        if about.stock || self.trace.retired > 0 || self.trace.threads.len() < 2 {
            return None;
        }
        let Ok(Spec::Priority(rules)) = Spec::parse(&about.policy) else { return None };
        let is_unmatched = |rule: &str| {
            let mut threads = self.trace.threads.iter();
            !threads.any(|it| rules.fits(rule, it.name.as_bytes(), it.native_id))
        };
        let unmatched: Vec<String> = rules
            .patterns()
            .filter(|rule| is_unmatched(rule))
            .map(|rule| format!("{rule:?}"))
            .collect();
        if unmatched.is_empty() {
            return None;
        }
        let there = self.labels(self.kinds.all().iter().map(|sums| sums.index));
        Some(Finding {
            kind: FindingKind::Unmatched,
            text: format!(
                "No thread fits {} of the policy; there are {}.",
                list(&unmatched),
                names(&there)
            ),
            mend: "write the rule for a name that is there, or give the thread one: \
                   threading.Thread(name=…)"
                .to_owned(),
            lost_ns: 0,
            victims: Vec::new(),
            blockers: Vec::new(),
            times: unmatched.len() as u64,
            median_ns: 0,
            longest_ns: 0,
            per_s: 0.0,
        })
    }
}
