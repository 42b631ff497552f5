//! Whether one thread has a lock to itself. While it has, nothing is done for the lock at all: no
//! clock is read and no policy asked.

use deconvoy_policy::driver::ROW;
use deconvoy_policy::{Nanos, WaiterId};

use crate::seat::Seat;

/// How it was when a thread began to have a lock to itself.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    pub seat: Seat,
    pub since: Nanos,
    /// What the thread had used of a processor by then.
    pub used: Nanos,
}

impl Own {
    /// Whether the thread, which by `now` has used so much of a processor, computed for more than
    /// half of the time.
    pub fn computed(&self, now: Nanos, used: Nanos) -> bool {
        used.since(self.used).0.saturating_mul(2) > now.since(self.since).0
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Usage {
    /// Nobody has had the lock yet.
    Fresh,
    /// It is that thread's own.
    Own(Own),
    /// Several threads use it. `row`: how often in a row `last` has taken it.
    Shared { last: WaiterId, row: u32 },
}

impl Usage {
    pub fn is_fresh(&self) -> bool {
        matches!(self, Usage::Fresh)
    }

    /// Whether the lock is that thread's own.
    pub fn is_own(&self, seat: Seat) -> bool {
        let same = |own: &Own| (own.seat.who, own.seat.generation) == (seat.who, seat.generation);
        matches!(self, Usage::Own(own) if same(own))
    }

    /// `me` has taken a lock that is not its own.
    pub fn taken(&mut self, me: WaiterId) {
        let before = match *self {
            Usage::Shared { last, row } if last == me => row,
            _ => 0,
        };
        *self = Usage::Shared { last: me, row: before.saturating_add(1) };
    }

    /// Others come. Whose own the lock was until now, unseen by the policy.
    pub fn share(&mut self) -> Option<Own> {
        match core::mem::replace(self, Usage::Shared { last: WaiterId(0), row: 0 }) {
            Usage::Own(own) => Some(own),
            _ => None,
        }
    }

    /// Whether `me`, the last who took the lock, has had it to itself for long.
    pub fn is_ripe(&self, me: WaiterId) -> bool {
        matches!(*self, Usage::Shared { last, row } if last == me && row >= ROW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Seat = Seat { who: WaiterId(3), generation: 1, priority: 0 };
    const OTHER: Seat = Seat { who: WaiterId(4), generation: 2, priority: 0 };
    const OWN: Own = Own { seat: ME, since: Nanos(1_000), used: Nanos(500) };

    #[test]
    fn a_lock_is_the_own_of_one_thread_and_not_of_another_under_its_number() {
        let usage = Usage::Own(OWN);
        assert!(usage.is_own(ME) && usage.is_own(Seat { priority: 3, ..ME }));
        assert!(!usage.is_own(OTHER) && !usage.is_own(Seat { generation: 7, ..ME }));
        assert!(!Usage::Fresh.is_own(ME));
    }

    #[test]
    fn a_row_by_one_thread_ripens_and_whoever_comes_ends_it() {
        let long = |usage: &mut Usage| {
            assert!(!usage.is_ripe(ME.who));
            (0..ROW).for_each(|_| usage.taken(ME.who));
            assert!(usage.is_ripe(ME.who) && !usage.is_ripe(OTHER.who));
        };
        let mut usage = Usage::Fresh;
        assert!(usage.share().is_none());
        long(&mut usage);
        usage.taken(OTHER.who);
        long(&mut usage);
        assert!(usage.share().is_none());
        long(&mut usage);
        usage = Usage::Own(OWN);
        assert_eq!(usage.share().map(|own| own.seat), Some(ME));
        long(&mut usage);
    }

    #[test]
    fn half_of_the_time_on_a_processor_is_computing() {
        let later = Nanos(OWN.since.0 + 1_000);
        assert!(!OWN.computed(later, Nanos(OWN.used.0 + 500)));
        assert!(OWN.computed(later, Nanos(OWN.used.0 + 501)));
    }
}
