//! Will a thread that has just released the lock be back in a moment?
//!
//! A call that finds its data ready gives the lock up and wants it back a few microseconds later;
//! one that blocks stays away. A server's calls come in a pattern (wait, read, write, write), which
//! a running mean cannot learn and a two-level branch predictor learns exactly.
//!
//! Source of the idea: Yeh and Patt, "Two-level adaptive training branch prediction" (1991), with
//! releases in place of branches.

/// Two-bit counters, one for each pattern of the last four absences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct Predictor {
    /// 16 counters of 2 bits; 0 and 1 say short, 2 and 3 say long. A new thread is expected back.
    counters: u32,
    /// The last four absences, newest in bit 0; 1: long.
    history: u8,
}

const HISTORY_BITS: u8 = 4;
const _: () = assert!((1 << HISTORY_BITS) * 2 == u32::BITS);

impl Predictor {
    fn shift(self) -> u32 {
        u32::from(self.history & ((1 << HISTORY_BITS) - 1)) * 2
    }

    pub(crate) fn says_short(self) -> bool {
        (self.counters >> self.shift()) & 0b11 < 2
    }

    pub(crate) fn learn(&mut self, long: bool) {
        let shift = self.shift();
        let counter = (self.counters >> shift) & 0b11;
        let counter = if long { (counter + 1).min(3) } else { counter.saturating_sub(1) };
        self.counters = (self.counters & !(0b11 << shift)) | (counter << shift);
        self.history = (self.history << 1) | u8::from(long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messaging server of the talk: recv (waits), recv, send, send.
    #[test]
    fn it_learns_the_pattern_of_a_message() {
        let mut predictor = Predictor::default();
        let pattern = [true, false, false, false];
        let mut wrong = 0;
        for round in 0..40 {
            for long in pattern {
                wrong += usize::from(round >= 10 && predictor.says_short() == long);
                predictor.learn(long);
            }
        }
        assert_eq!(wrong, 0, "mispredictions after ten messages");
    }

    #[test]
    fn one_odd_absence_does_not_turn_it() {
        let mut predictor = Predictor::default();
        for _ in 0..20 {
            predictor.learn(false);
        }
        predictor.learn(true);
        for _ in 0..4 {
            predictor.learn(false);
        }
        assert!(predictor.says_short());
    }
}
