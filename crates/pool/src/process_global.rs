//! One value for the whole process, read far more often than written.
//!
//! The idea is Tcl's `ProcessGlobalValue` (8.4.20, 8.5; "Tcl and Threads" as told in the paper on a
//! thread-scaling regression): each thread has a copy of its own, and the number of the writing that it
//! is of, its *epoch*. A reader compares that with the epoch of the value; only where they differ does it
//! take the lock and copy anew. A writer takes the lock, stores, and advances the epoch.

use crate::primitive::{AtomicU64, Mutex, Ordering, lock};

/// Of a copy that was never made.
const NONE: u64 = 0;

/// The value; threads read it through a [`Reader`] of their own.
#[derive(Debug)]
pub struct ProcessGlobal<T> {
    /// Of what `value` has: counted up, with the lock held, after each writing.
    epoch: AtomicU64,
    value: Mutex<T>,
}

/// A thread's own copy. It costs a load and a comparison to read, while nobody writes.
#[derive(Debug)]
pub struct Reader<'g, T> {
    global: &'g ProcessGlobal<T>,
    copy: Cached<T>,
}

/// The number of a writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch(u64);

/// What a thread keeps of a [`ProcessGlobal`], where a [`Reader`] does not fit.
#[derive(Debug)]
pub struct Cached<T> {
    epoch: u64,
    value: Option<T>,
}

impl<T> Default for Cached<T> {
    fn default() -> Cached<T> {
        Cached::new()
    }
}

impl<T> Cached<T> {
    /// What was copied at that epoch.
    pub fn at(epoch: Epoch, value: T) -> Cached<T> {
        Cached { epoch: epoch.0, value: Some(value) }
    }

    /// Nothing was copied yet.
    pub const fn new() -> Cached<T> {
        Cached { epoch: NONE, value: None }
    }
}

impl<T> ProcessGlobal<T> {
    #[cfg(not(loom))]
    pub const fn new(value: T) -> ProcessGlobal<T> {
        ProcessGlobal { epoch: AtomicU64::new(NONE + 1), value: Mutex::new(value) }
    }

    #[cfg(loom)]
    pub fn new(value: T) -> ProcessGlobal<T> {
        ProcessGlobal { epoch: AtomicU64::new(NONE + 1), value: Mutex::new(value) }
    }

    /// Stores a value. Who reads after this has returned gets it, or a later one. The old one.
    pub fn set(&self, value: T) -> T {
        let mut held = lock(&self.value);
        let old = std::mem::replace(&mut *held, value);
        // Release: whoever sees this epoch without the lock may only conclude that its copy is old; what
        // it copies then it copies with the lock. The order is for those that have synchronised with
        // the writer by other means and must not find the epoch of before.
        self.epoch.fetch_add(1, Ordering::Release);
        old
    }

    /// A copy that is not older than the value.
    pub fn fresh<'c>(&self, copy: &'c Cached<T>) -> Option<&'c T> {
        // Acquire: the partner of the Release in `set`.
        copy.value.as_ref().filter(|_| copy.epoch == self.epoch.load(Ordering::Acquire))
    }

    /// What `of` makes of the value, with the lock held, and of which epoch it is.
    pub fn snapshot<R>(&self, of: impl FnOnce(&T) -> R) -> (R, Epoch) {
        let held = lock(&self.value);
        // With the lock held: no writer can be between its storing and its counting.
        (of(&held), Epoch(self.epoch.load(Ordering::Relaxed)))
    }

    /// What the value is now, by this thread's copy; `copies` makes one from the value, with the lock
    /// held.
    ///
    /// # Errors
    /// What `copies` says; the old copy is kept then, and is made anew at the next call.
    pub fn read<'c, E>(
        &self,
        copy: &'c mut Cached<T>,
        copies: impl FnOnce(&T) -> Result<T, E>,
    ) -> Result<&'c T, E> {
        if self.fresh(copy).is_none() {
            let (value, epoch) = self.snapshot(copies);
            *copy = Cached::at(epoch, value?);
        }
        match &copy.value {
            Some(value) => Ok(value),
            None => unreachable!("it was copied just now"),
        }
    }
}

impl<T: Clone> ProcessGlobal<T> {
    /// For one thread to read by.
    pub fn reader(&self) -> Reader<'_, T> {
        Reader { global: self, copy: Cached::default() }
    }
}

impl<T: Clone> Reader<'_, T> {
    pub fn get(&mut self) -> &T {
        let copied: Result<_, std::convert::Infallible> =
            self.global.read(&mut self.copy, |value| Ok(value.clone()));
        match copied {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_was_written_and_copies_it_once() {
        let global = ProcessGlobal::new(vec![1]);
        let mut reader = global.reader();
        let first = reader.get().as_ptr();
        assert_eq!(reader.get().as_ptr(), first);
        assert_eq!(global.set(vec![2]), [1]);
        assert_eq!(reader.get(), &[2]);
        assert_eq!(global.reader().get(), &[2]);
    }

    #[test]
    fn a_copy_that_fails_is_made_the_next_time() {
        let global = ProcessGlobal::new(1);
        let mut copy = Cached::default();
        assert_eq!(global.read(&mut copy, |_| Err("no")), Err("no"));
        assert_eq!(global.read(&mut copy, |value| Ok::<_, &str>(*value)), Ok(&1));
        global.set(2);
        assert_eq!(global.read(&mut copy, |_| Err("no")), Err("no"));
        assert_eq!(global.read(&mut copy, |value| Ok::<_, &str>(*value)), Ok(&2));
    }
}
