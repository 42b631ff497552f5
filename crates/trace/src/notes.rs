//! Writes down what goes in and out of a lock's policy.

use deconvoy_policy::{Action, Event, Nanos, Observer, WaiterId};

use crate::format::{Greeting, Kind};
use crate::record::Recorder;

/// What the notes need of the driver's threads.
pub trait Threads {
    /// The record of a thread in the trace.
    fn record_of(&self, who: WaiterId) -> u16;

    /// Where the thread runs that the event is of, if that can be told.
    fn core(&self) -> Option<u32>;
}

#[derive(Debug)]
pub struct Notes<T> {
    /// `None`: nothing is written down.
    pub recorder: Option<Recorder>,
    pub lock: u8,
    pub threads: T,
    /// When the first drop request for the present hold was made.
    asked_ns: Option<u64>,
}

impl<T> Notes<T> {
    pub fn new(recorder: Option<Recorder>, lock: u8, threads: T) -> Notes<T> {
        Notes { recorder, lock, threads, asked_ns: None }
    }
}

/// The distance from `now` to a point that is not before it, as an argument of an event.
fn ahead(now: Nanos, at: Nanos) -> u32 {
    u32::try_from(at.since(now).0).unwrap_or(u32::MAX)
}

impl<T: Threads> Observer for Notes<T> {
    fn event(&mut self, now: Nanos, event: Event) {
        let Some(recorder) = self.recorder else { return };
        let lock = self.lock;
        match event {
            Event::Start { who, priority } => {
                let greeting = Greeting { priority, number: Some(who.0) };
                recorder.write(
                    now.0,
                    Kind::Greet,
                    self.threads.record_of(who),
                    lock,
                    greeting.pack(),
                );
            }
            Event::Made { who, by } => {
                recorder.write(now.0, Kind::Made, self.threads.record_of(who), lock, by.0);
            }
            Event::Woken { who, by } => {
                recorder.write(now.0, Kind::Woken, self.threads.record_of(who), lock, by.0);
            }
            Event::Interval { length } => recorder.interval(now.0, 0, lock, length.0),
            Event::Arrive { who } => recorder.arrive(now.0, self.threads.record_of(who), lock),
            Event::Acquire { who } => {
                self.asked_ns = None;
                recorder.acquire(now.0, self.threads.record_of(who), lock, self.threads.core());
            }
            Event::Release { who, asked } => {
                let asked_ns = asked.then(|| self.asked_ns.unwrap_or(now.0));
                recorder.release(now.0, self.threads.record_of(who), lock, asked_ns);
            }
            Event::Expire { who } => {
                recorder.write(now.0, Kind::Expire, self.threads.record_of(who), lock, 0);
            }
            Event::Leave { who } => {
                recorder.write(now.0, Kind::Leave, self.threads.record_of(who), lock, 0);
            }
        }
    }

    fn action(&mut self, now: Nanos, action: Action) {
        let Some(recorder) = self.recorder else { return };
        let lock = self.lock;
        match action {
            Action::Ask { who } => {
                self.asked_ns = self.asked_ns.or(Some(now.0));
                recorder.ask(now.0, self.threads.record_of(who), lock);
            }
            Action::Wake { who } => {
                recorder.write(now.0, Kind::Wake, self.threads.record_of(who), lock, 0)
            }
            Action::Recall { who } => {
                recorder.write(now.0, Kind::Recall, self.threads.record_of(who), lock, 0);
            }
            Action::Grant { who } => {
                recorder.write(now.0, Kind::Grant, self.threads.record_of(who), lock, 0);
            }
            Action::Timer { who, at } => {
                recorder.write(
                    now.0,
                    Kind::Timer,
                    self.threads.record_of(who),
                    lock,
                    ahead(now, at),
                );
            }
            Action::Linger { who, until } => {
                recorder.write(
                    now.0,
                    Kind::Linger,
                    self.threads.record_of(who),
                    lock,
                    ahead(now, until),
                );
            }
        }
    }
}
