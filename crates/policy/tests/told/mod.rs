//! A policy that is told what happens, one thing after the other.
#![allow(dead_code, reason = "each test file uses a part")]

use deconvoy_policy::{
    Action, Actions, AnyPolicy, Driver, Event, Nanos, Policy, Slot, Spec, WaiterId,
};

pub const DRIVER: Driver = Driver { cores: 2, counts_instructions: false };

/// A policy that is told what happens, one thing after the other.
pub struct Told<'a> {
    pub policy: AnyPolicy<'a>,
    pub now: Nanos,
}

impl<'a> Told<'a> {
    pub fn new(slots: &'a mut [Slot], threads: u32) -> Told<'a> {
        Told::with("adaptive", slots, threads)
    }

    pub fn with(spec: &str, slots: &'a mut [Slot], threads: u32) -> Told<'a> {
        Told::on(DRIVER, spec, slots, threads)
    }

    pub fn on(driver: Driver, spec: &str, slots: &'a mut [Slot], threads: u32) -> Told<'a> {
        let policy = Spec::parse(spec).unwrap().build(driver, slots);
        let mut told = Told { policy, now: Nanos::from_millis(1) };
        for who in (0..threads).map(WaiterId) {
            told.tell(Event::Start { who, priority: 0 });
        }
        told
    }

    pub fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Actions::new();
        self.policy.step(self.now, event, &mut actions);
        actions.as_slice().to_vec()
    }

    pub fn pass(&mut self, time: Nanos) {
        self.now = self.now.after(time);
    }

    /// How long `who`, which arrives now, lets the holder be.
    pub fn patience_us(&mut self, who: WaiterId) -> u64 {
        let asks_at = timer_of(who, &self.tell(Event::Arrive { who }));
        asks_at.unwrap().since(self.now).0 / 1_000
    }
}

pub fn timer_of(who: WaiterId, actions: &[Action]) -> Option<Nanos> {
    actions.iter().find_map(|&action| match action {
        Action::Timer { who: of, at } if of == who => Some(at),
        _ => None,
    })
}
