//! Events as spans: what each thread does from when to when, and who handed the lock to whom.

use crate::format::{Kind, MAX_LOCKS};
use crate::read::Trace;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Waits,
    Holds,
}

/// A mark on the timeline. Spans of one thread do not overlap; each that is begun is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// `from`: the hand-off that this hold ends; `to`: the one that it begins with its end.
    Begin {
        thread: u16,
        lock: u8,
        doing: Doing,
        from: Option<u64>,
        to: Option<u64>,
    },
    End {
        thread: u16,
        to: Option<u64>,
    },
    /// A drop request.
    Ask {
        thread: u16,
        lock: u8,
    },
    /// How many threads wait, from now on.
    Waiting {
        count: u64,
    },
}

/// Whose acquisition, by event number, handed the lock on to whose.
struct HandOffs {
    /// For each event: the acquisition that it took the lock over from, as number + 1; 0: none.
    from: Vec<u32>,
    /// For each event: it is an acquisition whose hold ended in a hand-off.
    to: Vec<bool>,
}

impl HandOffs {
    fn of(trace: &Trace) -> HandOffs {
        let mut found =
            HandOffs { from: vec![0; trace.events.len()], to: vec![false; trace.events.len()] };
        let mut last: Vec<Option<(usize, u16)>> = vec![None; MAX_LOCKS];
        let mut waits = vec![false; threads(trace)];
        for (number, event) in trace.events.iter().enumerate() {
            let thread = usize::from(event.thread);
            match event.kind {
                Kind::Arrive => waits[thread] = true,
                Kind::Acquire => {
                    let last = &mut last[usize::from(event.lock)];
                    let waited = std::mem::take(&mut waits[thread]);
                    let source = last.filter(|&(_, holder)| waited && holder != event.thread);
                    if let Some((source, _)) = source {
                        found.from[number] = u32::try_from(source + 1).unwrap_or(0);
                        found.to[source] = true;
                    }
                    *last = Some((number, event.thread));
                }
                Kind::Start | Kind::End | Kind::Leave => waits[thread] = false,
                Kind::LockStart => last[usize::from(event.lock)] = None,
                _ => {}
            }
        }
        found
    }
}

fn threads(trace: &Trace) -> usize {
    trace.events.iter().map(|event| usize::from(event.thread) + 1).max().unwrap_or(0)
}

#[derive(Clone, Copy)]
struct Open {
    doing: Doing,
    to: Option<u64>,
}

struct Timeline<F> {
    number: u32,
    open: Vec<Option<Open>>,
    waiting: u64,
    mark: F,
}

/// Calls `mark` with each mark and its time since the start of the trace, in the order of events.
/// `number`: of this trace among those whose hand-offs are told apart.
///
/// # Errors
/// The first error of `mark`, which ends it.
pub fn timeline<E>(
    trace: &Trace,
    number: u32,
    mark: impl FnMut(u64, Mark) -> Result<(), E>,
) -> Result<(), E> {
    let hand_offs = HandOffs::of(trace);
    let mut timeline = Timeline { number, open: vec![None; threads(trace)], waiting: 0, mark };
    for (number, event) in trace.events.iter().enumerate() {
        let (at_ns, thread, lock) = (event.at_ns, event.thread, event.lock);
        match event.kind {
            // It waits again.
            Kind::Arrive if timeline.doing(thread) == Some(Doing::Waits) => {}
            Kind::Arrive => timeline.begin(at_ns, thread, lock, Doing::Waits, None, None)?,
            Kind::Acquire => {
                let from = hand_offs.from[number].checked_sub(1);
                let from = from.map(|source| timeline.hand_off(u64::from(source)));
                let to = hand_offs.to[number].then(|| timeline.hand_off(number as u64));
                timeline.begin(at_ns, thread, lock, Doing::Holds, from, to)?;
            }
            Kind::Release | Kind::Start | Kind::End | Kind::Leave => timeline.end(at_ns, thread)?,
            Kind::Ask => (timeline.mark)(at_ns, Mark::Ask { thread, lock })?,
            _ => {}
        }
    }
    for thread in 0..timeline.open.len() {
        timeline.end(trace.end_ns, thread as u16)?;
    }
    Ok(())
}

impl<E, F: FnMut(u64, Mark) -> Result<(), E>> Timeline<F> {
    fn doing(&self, thread: u16) -> Option<Doing> {
        self.open[usize::from(thread)].map(|open| open.doing)
    }

    /// A number for the hand-off by the hold that event `source` began, unlike any other trace's.
    fn hand_off(&self, source: u64) -> u64 {
        (u64::from(self.number) << 32).wrapping_add(source + 1)
    }

    fn count(&mut self, at_ns: u64, waiting: u64) -> Result<(), E> {
        self.waiting = waiting;
        (self.mark)(at_ns, Mark::Waiting { count: waiting })
    }

    fn begin(
        &mut self,
        at_ns: u64,
        thread: u16,
        lock: u8,
        doing: Doing,
        from: Option<u64>,
        to: Option<u64>,
    ) -> Result<(), E> {
        self.end(at_ns, thread)?;
        self.open[usize::from(thread)] = Some(Open { doing, to });
        (self.mark)(at_ns, Mark::Begin { thread, lock, doing, from, to })?;
        if doing == Doing::Waits { self.count(at_ns, self.waiting + 1) } else { Ok(()) }
    }

    fn end(&mut self, at_ns: u64, thread: u16) -> Result<(), E> {
        let Some(open) = self.open[usize::from(thread)].take() else { return Ok(()) };
        (self.mark)(at_ns, Mark::End { thread, to: open.to })?;
        if open.doing == Doing::Waits { self.count(at_ns, self.waiting - 1) } else { Ok(()) }
    }
}
