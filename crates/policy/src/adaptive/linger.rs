//! Who stays awake, and whether that pays.

use super::{Adaptive, Hold};
use crate::{Action, Actions, Nanos, WaiterId};

/// Lingering that fails this often in a row is tried only now and then.
const LINGER_FAILURES: u8 = 4;
const LINGER_PROBE: u8 = 64;

/// So many stay awake at a time at most, and one core is left to the holder.
const MOST: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Lingerer {
    who: WaiterId,
    /// It is awake from then on, as far as is known.
    from: Nanos,
    until: Nanos,
}

/// Those who stay awake.
#[derive(Debug)]
pub(super) struct Awake {
    places: [Option<Lingerer>; MOST],
    room: usize,
    failures: u8,
    skipped: u8,
}

impl Awake {
    pub(super) fn new(cores: u32) -> Awake {
        let room = (cores as usize).saturating_sub(1).min(MOST);
        Awake { places: [None; MOST], room, failures: 0, skipped: 0 }
    }

    pub(super) fn holds(&self, now: Nanos, who: WaiterId) -> bool {
        self.now(now).any(|one| one == who)
    }

    fn now(&self, now: Nanos) -> impl Iterator<Item = WaiterId> {
        self.places
            .iter()
            .flatten()
            .filter(move |one| one.from <= now && one.until > now)
            .map(|one| one.who)
    }

    pub(super) fn forget(&mut self, who: WaiterId) -> Option<Nanos> {
        let place = self.places.iter_mut().find(|one| one.is_some_and(|one| one.who == who))?;
        place.take().map(|one| one.until)
    }

    /// The place for one more, or for one that has a place already.
    fn place(&mut self, now: Nanos, who: WaiterId) -> Option<&mut Option<Lingerer>> {
        let mine = self.places.iter().position(|one| one.is_some_and(|one| one.who == who));
        let free = || self.places.iter().position(|one| one.is_none_or(|one| one.until <= now));
        let index = mine.or_else(free).filter(|&index| index < self.room)?;
        self.places.get_mut(index)
    }

    /// Whether it pays to try.
    fn pays(&mut self) -> bool {
        if self.failures < LINGER_FAILURES {
            return true;
        }
        self.skipped += 1;
        let probes = self.skipped >= LINGER_PROBE;
        if probes {
            self.skipped = 0;
        }
        probes
    }
}

impl Adaptive<'_> {
    /// `who` is awake `from` then, as far as is known, `until` then. It takes the place of another if
    /// there is none left.
    pub(super) fn linger(
        &mut self,
        now: Nanos,
        who: WaiterId,
        from: Nanos,
        until: Nanos,
        actions: &mut Actions,
    ) {
        if self.awake.room == 0 || !self.awake.pays() {
            return;
        }
        if self.awake.place(now, who).is_none() {
            let last = self.last_awake();
            if let Some(other) = last.filter(|&other| other != who) {
                self.awake.forget(other);
                actions.push(Action::Linger { who: other, until: Nanos::ZERO });
            }
        }
        if let Some(place) = self.awake.place(now, who) {
            let was = place.filter(|one| one.who == who && one.until > now).map(|one| one.from);
            let from = was.unwrap_or(from).min(from);
            *place = Some(Lingerer { who, from, until });
            actions.push(Action::Linger { who, until });
        }
    }

    /// Of those who are awake the one whose turn comes last: one that computes, else who came last.
    fn last_awake(&self) -> Option<WaiterId> {
        let all = || self.awake.places.iter().flatten().map(|one| one.who);
        let computes = all().find(|&who| !self.ready.holds(&self.slots, who));
        computes.or_else(|| all().max_by_key(|&who| self.slots.at(who).arrived_at))
    }

    /// One that was passed over asleep has woken up: it stays awake, to be first from now on, in the
    /// place of one that came later if need be. The one whose slice it is keeps its place.
    pub(super) fn stays_awake_if_next(&mut self, now: Nanos, who: WaiterId, actions: &mut Actions) {
        let Some(hold) = self.hold.filter(|_| self.ready.head() == Some(who)) else { return };
        let later = self.last_awake().filter(|&other| self.ready.holds(&self.slots, other));
        if self.awake.place(now, who).is_some() || later.is_some() {
            self.linger_behind(now, &hold, who, Nanos::ZERO, actions);
        }
    }

    pub(super) fn score_linger(&mut self, now: Nanos, taker: WaiterId) {
        if let Some(until) = self.awake.forget(taker) {
            self.awake.failures =
                if now <= until { 0 } else { self.awake.failures.saturating_add(1) };
        }
    }

    /// Whoever arrives stays awake when the holder needs the lock only for a moment, as far as that
    /// is known: one that was interrupted in its slice, and one behind a holder that lives on its
    /// credit, if there is room. To sleep would take longer, and its timer alone costs a
    /// virtual machine two exits.
    pub(super) fn linger_for_a_moment(
        &mut self,
        now: Nanos,
        hold: &Hold,
        who: WaiterId,
        actions: &mut Actions,
    ) {
        let others = self.awake.now(now).filter(|&one| one != who);
        let ahead = Nanos(others.map(|one| self.slots.at(one).burst.0).sum());
        let interrupted = self.turn == Some(who) && hold.credit.0 > 0;
        let room = self.awake.place(now, who).is_some();
        if interrupted || (hold.credit >= self.params.wakeup && room) {
            self.linger_behind(now, hold, who, ahead, actions);
        }
    }

    /// `who` stays awake behind the holder, and others who need the lock for `ahead`, if that is not for
    /// long.
    fn linger_behind(
        &mut self,
        now: Nanos,
        hold: &Hold,
        who: WaiterId,
        ahead: Nanos,
        actions: &mut Actions,
    ) {
        let expected = self.slots.at(hold.who).burst.after(ahead);
        if expected < self.params.linger {
            let until = now.after(self.params.linger).after(expected);
            self.linger(now, who, now, until, actions);
        }
    }

    /// Who is awake and can have the lock while `next` wakes up: of those that are ready whoever came
    /// first, else one that computes.
    pub(super) fn instead_of(&self, now: Nanos, next: WaiterId) -> Option<WaiterId> {
        if self.awake.holds(now, next) {
            return None;
        }
        let first = self.ready_awake(now).min_by_key(|&who| self.slots.at(who).arrived_at);
        first.or_else(|| self.awake.now(now).find(|&who| self.waits(who)))
    }

    /// It is awake, and those before it are not.
    pub(super) fn goes_first(&self, now: Nanos, who: WaiterId) -> bool {
        self.ready.holds(&self.slots, who)
            && self.credit(now, who) >= self.params.wakeup
            && self.ready_awake(now).all(|other| other == who)
    }

    fn ready_awake(&self, now: Nanos) -> impl Iterator<Item = WaiterId> {
        self.awake.now(now).filter(|&who| self.ready.holds(&self.slots, who))
    }
}
