//! A queue from whose middle an entry can be taken.
//!
//! A future that is touched before its turn leaves the queue, wherever it stands, in constant time: each
//! entry has a ticket, and its place is left empty until it comes to one of the ends.

use std::collections::VecDeque;

#[derive(Debug)]
pub struct Queue<T> {
    /// The ticket of the first place.
    first: u64,
    places: VecDeque<Option<T>>,
    count: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { first: 0, places: VecDeque::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    /// Puts an entry at the end; its ticket. Once an entry has left, its ticket may be given again.
    pub fn push(&mut self, item: T) -> u64 {
        let ticket = self.first + self.places.len() as u64;
        self.places.push_back(Some(item));
        self.count += 1;
        ticket
    }

    /// Takes the entry with this ticket out, if there is one and it `is` the one that is meant.
    pub fn take(&mut self, ticket: u64, is: impl FnOnce(&T) -> bool) -> Option<T> {
        let place = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        let item = self.places.get_mut(place)?.take_if(|item| is(item))?;
        self.count -= 1;
        self.trim();
        Some(item)
    }

    /// The entry that has been here longest.
    pub fn pop_oldest(&mut self) -> Option<T> {
        let item = self.places.pop_front()??;
        self.first += 1;
        self.count -= 1;
        self.trim();
        Some(item)
    }

    /// The entry that came last.
    pub fn pop_newest(&mut self) -> Option<T> {
        let item = self.places.pop_back()??;
        self.count -= 1;
        self.trim();
        Some(item)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// Neither end is an empty place.
    fn trim(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        while let Some(None) = self.places.back() {
            self.places.pop_back();
        }
    }
}
