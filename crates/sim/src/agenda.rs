//! What is due when: a point in time for each of a fixed number of places, and the earliest first.
//!
//! A 4-ary heap of the places that are due, each of which knows where it stands, so that a time can
//! be moved or taken back. Its size is that of what is simulated, however long it runs. Two that are
//! due at the same time come in the order in which they were set.

/// Nothing is due.
pub const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    /// Counts settings; wraps around after four billion, which only matters among equal times.
    order: u32,
    place: u32,
}

impl Entry {
    fn is_before(&self, other: &Entry) -> bool {
        (self.at, self.order) < (other.at, other.order)
    }
}

const NOWHERE: u32 = u32::MAX;
const ARITY: usize = 4;

pub struct Agenda {
    heap: Vec<Entry>,
    /// Where each place stands in the heap.
    stands: Vec<u32>,
    order: u32,
}

impl Agenda {
    pub fn new(places: usize) -> Agenda {
        Agenda { heap: Vec::with_capacity(places), stands: vec![NOWHERE; places], order: 0 }
    }

    /// What comes first, and when.
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().map(|entry| (entry.at, entry.place))
    }

    /// `place` is due at `at`, and at no other time.
    pub fn set(&mut self, place: u32, at: u64) {
        if at == NEVER {
            return self.clear(place);
        }
        self.order = self.order.wrapping_add(1);
        let entry = Entry { at, order: self.order, place };
        let stands = self.stands[place as usize];
        if stands == NOWHERE {
            self.heap.push(entry);
            self.up(self.heap.len() - 1, entry);
        } else {
            self.settle(stands as usize, entry);
        }
    }

    pub fn clear(&mut self, place: u32) {
        let stands = std::mem::replace(&mut self.stands[place as usize], NOWHERE);
        if stands == NOWHERE {
            return;
        }
        let Some(last) = self.heap.pop() else { return };
        if (stands as usize) < self.heap.len() {
            self.settle(stands as usize, last);
        }
    }

    /// Puts `entry` where the one at `hole` was.
    fn settle(&mut self, hole: usize, entry: Entry) {
        if hole > 0 && entry.is_before(&self.heap[(hole - 1) / ARITY]) {
            self.up(hole, entry);
        } else {
            self.down(hole, entry);
        }
    }

    fn put(&mut self, hole: usize, entry: Entry) {
        self.heap[hole] = entry;
        self.stands[entry.place as usize] = hole as u32;
    }

    fn up(&mut self, mut hole: usize, entry: Entry) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !entry.is_before(&self.heap[parent]) {
                break;
            }
            self.put(hole, self.heap[parent]);
            hole = parent;
        }
        self.put(hole, entry);
    }

    fn down(&mut self, mut hole: usize, entry: Entry) {
        loop {
            let first = hole * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let least = children.reduce(|one, other| {
                if self.heap[other].is_before(&self.heap[one]) { other } else { one }
            });
            match least {
                Some(child) if self.heap[child].is_before(&entry) => {
                    self.put(hole, self.heap[child]);
                    hole = child;
                }
                _ => break,
            }
        }
        self.put(hole, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_earliest_comes_first(changes in prop::collection::vec((0u32..40, 0u64..50), 0..400)) {
            let mut agenda = Agenda::new(40);
            let mut model = BTreeMap::new();
            for (order, (place, at)) in changes.into_iter().enumerate() {
                // A time of 0 takes it back.
                if at == 0 {
                    agenda.clear(place);
                    model.remove(&place);
                } else {
                    agenda.set(place, at);
                    model.insert(place, (at, order));
                }
                let first = model.iter().min_by_key(|(_, due)| **due);
                prop_assert_eq!(agenda.first(), first.map(|(&place, &(at, _))| (at, place)));
            }
        }
    }
}
