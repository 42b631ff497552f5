//! A doubly linked list of waiters that lives in their records: no allocation, and a waiter
//! leaves from any place in constant time.

use crate::WaiterId;
use crate::slots::{QueueId, Slots};

/// So many waiters one that comes later passes at most. With thousands that want more than there is, the
/// order is then nearly that of arrival.
const MOST_PASSED: u32 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    id: QueueId,
    /// Number + 1; 0: empty.
    head: u32,
    tail: u32,
}

fn link(who: WaiterId) -> u32 {
    who.0.wrapping_add(1)
}

fn linked(link: u32) -> Option<WaiterId> {
    link.checked_sub(1).map(WaiterId)
}

impl Queue {
    pub(crate) const fn new(id: QueueId) -> Queue {
        Queue { id, head: 0, tail: 0 }
    }

    pub(crate) fn head(&self) -> Option<WaiterId> {
        linked(self.head)
    }

    /// Who stands behind `who`, in whichever queue that is.
    pub(crate) fn behind(slots: &Slots<'_>, who: WaiterId) -> Option<WaiterId> {
        linked(slots.at(who).next)
    }

    pub(crate) fn holds(&self, slots: &Slots<'_>, who: WaiterId) -> bool {
        slots.at(who).queue == self.id
    }

    pub(crate) fn push_back(&mut self, slots: &mut Slots<'_>, who: WaiterId) {
        self.insert_after(slots, self.tail, who);
    }

    /// Puts `who` behind the last waiter for which `before` holds, looking from the tail: first
    /// come, first served among equals. It goes to the front if it holds for nobody, and passes
    /// [`MOST_PASSED`] otherwise: this is done with the lock's mutex held.
    pub(crate) fn insert(
        &mut self,
        slots: &mut Slots<'_>,
        who: WaiterId,
        before: impl Fn(&Slots<'_>, WaiterId) -> bool,
    ) {
        if linked(self.head).is_none_or(|head| !before(slots, head)) {
            return self.insert_after(slots, 0, who);
        }
        let mut place = self.tail;
        for _ in 0..MOST_PASSED {
            match linked(place) {
                Some(other) if !before(slots, other) => place = slots.at(other).prev,
                _ => break,
            }
        }
        self.insert_after(slots, place, who);
    }

    fn insert_after(&mut self, slots: &mut Slots<'_>, prev: u32, who: WaiterId) {
        let next = match linked(prev) {
            Some(other) => core::mem::replace(&mut slots.at_mut(other).next, link(who)),
            None => core::mem::replace(&mut self.head, link(who)),
        };
        match linked(next) {
            Some(other) => slots.at_mut(other).prev = link(who),
            None => self.tail = link(who),
        }
        let slot = slots.at_mut(who);
        slot.prev = prev;
        slot.next = next;
        slot.queue = self.id;
    }

    pub(crate) fn remove(&mut self, slots: &mut Slots<'_>, who: WaiterId) {
        if !self.holds(slots, who) {
            return;
        }
        let (prev, next) = {
            let slot = slots.at_mut(who);
            let ends = (slot.prev, slot.next);
            slot.prev = 0;
            slot.next = 0;
            slot.queue = QueueId::NONE;
            ends
        };
        match linked(prev) {
            Some(other) => slots.at_mut(other).next = next,
            None => self.head = next,
        }
        match linked(next) {
            Some(other) => slots.at_mut(other).prev = prev,
            None => self.tail = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::Slot;

    fn order(queue: &Queue, slots: &Slots<'_>) -> Vec<u32> {
        std::iter::successors(queue.head(), |&who| Queue::behind(slots, who))
            .map(|who| who.0)
            .collect()
    }

    #[test]
    fn who_comes_passes_those_behind_it_and_not_too_many() {
        let mut list = vec![Slot::default(); 200];
        let mut slots = Slots::new(&mut list);
        let mut queue = Queue::new(QueueId::READY);
        let mut insert = |slots: &mut Slots<'_>, who: u32, mark: u64| {
            slots.at_mut(WaiterId(who)).mark = mark;
            queue.insert(slots, WaiterId(who), |slots, other| slots.at(other).mark <= mark);
            queue
        };
        for (who, mark) in [(0, 10), (1, 20), (2, 10), (3, 5)] {
            insert(&mut slots, who, mark);
        }
        assert_eq!(order(&insert(&mut slots, 4, 20), &slots), [3, 0, 2, 1, 4]);
        for who in 5..105 {
            insert(&mut slots, who, 100);
        }
        let queue = insert(&mut slots, 150, 50);
        let place = order(&queue, &slots).iter().position(|&who| who == 150);
        assert_eq!(place, Some(105 - MOST_PASSED as usize));
        assert_eq!(order(&insert(&mut slots, 151, 1), &slots)[0], 151, "the first of all");
    }
}
