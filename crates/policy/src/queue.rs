//! A doubly linked list of waiters that lives in their records: no allocation, and a waiter
//! leaves from any place in constant time.

use crate::WaiterId;
use crate::slots::{QueueId, Slots};

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
    /// come, first served among equals.
    pub(crate) fn insert(
        &mut self,
        slots: &mut Slots<'_>,
        who: WaiterId,
        before: impl Fn(&Slots<'_>, WaiterId) -> bool,
    ) {
        let mut place = self.tail;
        while let Some(other) = linked(place) {
            if before(slots, other) {
                break;
            }
            place = slots.at(other).prev;
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
