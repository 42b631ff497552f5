//! What threads and kinds are called.

use std::collections::HashMap;

use crate::format::OTHERS;
use crate::read::Trace;

use super::ThreadLabel;
use super::kinds::{Kind, Kinds};

/// Names for threads that a reader can tell apart.
pub struct Labels<'l> {
    threads: HashMap<u16, ThreadLabel>,
    kinds: &'l Kinds,
}

impl<'l> Labels<'l> {
    pub fn new(trace: &Trace, kinds: &'l Kinds) -> Self {
        let mut namesakes = HashMap::new();
        for thread in &trace.threads {
            *namesakes.entry(thread.name.as_str()).or_insert(0u32) += 1;
        }
        let labels = trace.threads.iter().map(|thread| {
            let alone = namesakes.get(thread.name.as_str()) == Some(&1);
            let (name, native_id) = (&thread.name, thread.native_id);
            let label = match (thread.index, name.as_str(), alone) {
                (OTHERS, ..) => "other threads".to_owned(),
                (_, "", _) => format!("thread {native_id}"),
                (_, _, true) => format!("{name:?}"),
                (_, _, false) => format!("{name:?} ({native_id})"),
            };
            (thread.index, ThreadLabel { index: thread.index, native_id, label })
        });
        Labels { threads: labels.collect(), kinds }
    }

    /// Of the kind that `index` stands for.
    pub fn of(&self, index: u16) -> ThreadLabel {
        match self.kinds.get(index).and_then(Kind::label) {
            Some(label) => ThreadLabel { index, native_id: 0, label },
            None => self.of_thread(index),
        }
    }

    pub fn of_thread(&self, index: u16) -> ThreadLabel {
        self.threads.get(&index).cloned().unwrap_or_else(|| ThreadLabel {
            index,
            native_id: 0,
            label: format!("a thread without a record ({index})"),
        })
    }
}
