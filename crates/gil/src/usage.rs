//! Whether one thread has a lock to itself. While it has, nothing is done for the lock at all: no
//! clock is read and no policy asked.

use deconvoy_policy::WaiterId;

/// So many acquisitions in a row by one thread, with nobody waiting, and the lock is its own. What
/// they cost (150 ns each) is a few per mille of what the end of such a time costs, a wake-up.
const ROW: u32 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// Nobody has had the lock yet.
    Fresh,
    Alone(WaiterId),
    /// Several threads use it. `row`: how often in a row `last` has taken it.
    Shared {
        last: WaiterId,
        row: u32,
    },
}

impl Usage {
    /// Whether the lock is, or becomes, the own one of `me`, who takes it.
    pub fn is_own(&mut self, me: WaiterId) -> bool {
        if *self == Usage::Fresh {
            *self = Usage::Alone(me);
        }
        *self == Usage::Alone(me)
    }

    /// `me` has taken a lock that is not its own.
    pub fn taken(&mut self, me: WaiterId) {
        let before = match *self {
            Usage::Shared { last, row } if last == me => row,
            _ => 0,
        };
        *self = Usage::Shared { last: me, row: before.saturating_add(1) };
    }

    /// Somebody waits. Who had the lock to itself until now, unseen by the policy.
    pub fn contended(&mut self) -> Option<WaiterId> {
        match core::mem::replace(self, Usage::Shared { last: WaiterId(0), row: 0 }) {
            Usage::Alone(who) => Some(who),
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

    const ME: WaiterId = WaiterId(3);
    const OTHER: WaiterId = WaiterId(4);

    #[test]
    fn the_first_thread_has_the_lock_to_itself_until_another_takes_it() {
        let mut usage = Usage::Fresh;
        assert!(usage.is_own(ME) && usage.is_own(ME));
        assert!(!usage.is_own(OTHER));
        usage.taken(OTHER);
        assert!(!usage.is_own(ME));
    }

    #[test]
    fn a_row_by_one_thread_ripens_and_a_waiter_or_another_ends_it() {
        let long = |usage: &mut Usage| {
            assert!(!usage.is_ripe(ME));
            (0..ROW).for_each(|_| usage.taken(ME));
            assert!(usage.is_ripe(ME) && !usage.is_ripe(OTHER));
        };
        let mut usage = Usage::Fresh;
        assert_eq!(usage.contended(), None);
        long(&mut usage);
        usage.taken(OTHER);
        long(&mut usage);
        assert_eq!(usage.contended(), None);
        long(&mut usage);
        usage = Usage::Alone(ME);
        assert_eq!(usage.contended(), Some(ME));
        long(&mut usage);
    }
}
