//! Every policy behind one type.

use crate::adaptive::{self, Adaptive};
use crate::catalogue::{ADAPTIVE, TICKS, TIMEOUT, TIMER};
use crate::classic::Classic;
use crate::parse::{ParseError, Rules, cut, parse_settings};
use crate::priority::Priority;
use crate::timeout::{self, Timeout};
use crate::{Actions, Driver, Event, Nanos, Policy, Slot, WaiterId, fifo, mutex, ticks, timer};

/// A policy with its parameters, as written by a user; made into a machine by [`Spec::build`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spec<'s> {
    Mutex(timer::Params),
    Ticks(ticks::Params),
    Timer(timer::Params),
    Fifo(ticks::Params),
    Timeout(timeout::Params),
    Priority(Rules<'s>),
    Adaptive(adaptive::Params),
}

impl<'s> Spec<'s> {
    /// Reads `NAME` or `NAME:OPTIONS`.
    ///
    /// # Errors
    /// A [`ParseError`] that says what is wrong and what would be right.
    pub fn parse(text: &'s str) -> Result<Spec<'s>, ParseError<'s>> {
        let (name, options) = cut(text, b':').unwrap_or((text, ""));
        match name {
            "mutex" => parse_timer("mutex", options).map(Spec::Mutex),
            "ticks" => parse_ticks("ticks", options).map(Spec::Ticks),
            "timer" => parse_timer("timer", options).map(Spec::Timer),
            "fifo" => parse_ticks("fifo", options).map(Spec::Fifo),
            "timeout" => parse_timeout(options).map(Spec::Timeout),
            "priority" => Rules::parse(options).map(Spec::Priority),
            "adaptive" => parse_adaptive(options).map(Spec::Adaptive),
            _ => Err(ParseError::UnknownPolicy(name)),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Spec::Mutex(_) => "mutex",
            Spec::Ticks(_) => "ticks",
            Spec::Timer(_) => "timer",
            Spec::Fifo(_) => "fifo",
            Spec::Timeout(_) => "timeout",
            Spec::Priority(_) => "priority",
            Spec::Adaptive(_) => "adaptive",
        }
    }

    /// The holder gives the lock up each time that it has run so many instructions, in a driver that
    /// counts them.
    pub fn instructions(&self) -> Option<u32> {
        match self {
            Spec::Ticks(params) | Spec::Fifo(params) => Some(params.instructions),
            _ => None,
        }
    }

    /// Whether a driver that can is to keep threads that are woken for a lock of the program's from
    /// taking it before the thread that needs it next, which holds ours, is through: what the policies
    /// of others do is shown as it is.
    pub fn breaks_convoys(&self) -> bool {
        matches!(self, Spec::Adaptive(_))
    }

    /// Whether a thread's name makes a difference.
    pub fn reads_names(&self) -> bool {
        matches!(self, Spec::Priority(_))
    }

    /// The static priority of a thread; 0 for policies without any.
    pub fn priority(&self, name: &[u8], native_id: u32) -> i8 {
        match self {
            Spec::Priority(rules) => rules.priority(name, native_id),
            _ => 0,
        }
    }

    /// Makes the machine for one lock. `slots`: a record a thread, at first all empty.
    pub fn build<'a>(&self, driver: Driver, slots: &'a mut [Slot]) -> AnyPolicy<'a> {
        match *self {
            Spec::Mutex(params) => AnyPolicy::Classic(mutex::new(params, slots)),
            Spec::Ticks(params) => AnyPolicy::Classic(ticks::new(params, driver, slots)),
            Spec::Timer(params) => AnyPolicy::Classic(timer::new(params, slots)),
            Spec::Fifo(params) => AnyPolicy::Classic(fifo::new(params, driver, slots)),
            Spec::Timeout(params) => AnyPolicy::Timeout(Timeout::new(params, slots)),
            Spec::Priority(_) => AnyPolicy::Priority(Priority::new(slots)),
            Spec::Adaptive(params) => {
                AnyPolicy::Adaptive(Adaptive::new(params, driver.cores, slots))
            }
        }
    }
}

fn parse_timer<'s>(
    policy: &'static str,
    options: &'s str,
) -> Result<timer::Params, ParseError<'s>> {
    let mut params = timer::Params::DEFAULT;
    parse_settings(policy, options, TIMER, [&mut params.interval.0])?;
    Ok(params)
}

fn parse_ticks<'s>(
    policy: &'static str,
    options: &'s str,
) -> Result<ticks::Params, ParseError<'s>> {
    let mut instructions = u64::from(ticks::Params::DEFAULT.instructions);
    parse_settings(policy, options, TICKS, [&mut instructions])?;
    Ok(ticks::Params { instructions: u32::try_from(instructions).unwrap_or(u32::MAX) })
}

fn parse_timeout(options: &str) -> Result<timeout::Params, ParseError<'_>> {
    let mut interval = Nanos::MAX;
    parse_settings("timeout", options, TIMEOUT, [&mut interval.0])?;
    Ok(timeout::Params { interval: (interval != Nanos::MAX).then_some(interval) })
}

fn parse_adaptive(options: &str) -> Result<adaptive::Params, ParseError<'_>> {
    // What is left alone follows the credit down.
    const FOLLOWS: Nanos = Nanos::MAX;
    let mut p = adaptive::Params { wakeup: FOLLOWS, ..adaptive::Params::DEFAULT };
    let places = [
        &mut p.slice.0,
        &mut p.credit.0,
        &mut p.wakeup.0,
        &mut p.grace.0,
        &mut p.handover.0,
        &mut p.guard.0,
        &mut p.linger.0,
    ];
    parse_settings("adaptive", options, ADAPTIVE, places)?;
    if p.wakeup == FOLLOWS {
        p.wakeup = adaptive::Params::DEFAULT.wakeup.min(p.credit);
    }
    if p.wakeup > p.credit {
        let (low, high) = ("1us", "the credit");
        return Err(ParseError::OutOfRange { option: "wakeup", low, high });
    }
    Ok(p)
}

/// One of the policies. There is one a lock, and no heap to put a large one on.
#[derive(Debug)]
#[expect(clippy::large_enum_variant)]
pub enum AnyPolicy<'a> {
    Classic(Classic<'a>),
    Timeout(Timeout<'a>),
    Priority(Priority<'a>),
    Adaptive(Adaptive<'a>),
}

/// Does the same with whichever policy it is.
macro_rules! each {
    ($any:expr, $policy:ident => $does:expr) => {
        match $any {
            AnyPolicy::Classic($policy) => $does,
            AnyPolicy::Timeout($policy) => $does,
            AnyPolicy::Priority($policy) => $does,
            AnyPolicy::Adaptive($policy) => $does,
        }
    };
}

impl Policy for AnyPolicy<'_> {
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        each!(self, policy => policy.step(now, event, actions));
    }

    fn forces_switch(&self) -> bool {
        each!(self, policy => policy.forces_switch())
    }

    fn punctual(&self) -> Option<[Option<WaiterId>; 3]> {
        each!(self, policy => policy.punctual())
    }

    fn computes(&self, who: WaiterId) -> bool {
        each!(self, policy => policy.computes(who))
    }

    fn bound(&self, threads: u32, check: Nanos) -> Option<Nanos> {
        each!(self, policy => policy.bound(threads, check))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Takes, catalogue};
    use crate::parse::parse_value;
    use std::string::ToString;

    #[test]
    fn options_are_read() {
        let Ok(Spec::Timeout(params)) = Spec::parse("timeout:1ms") else { panic!() };
        assert_eq!(params.interval, Some(Nanos::from_millis(1)));
        let Ok(Spec::Adaptive(params)) = Spec::parse("adaptive:slice=10ms,grace=0us") else {
            panic!()
        };
        assert_eq!((params.slice, params.grace), (Nanos::from_millis(10), Nanos::ZERO));
        let Ok(Spec::Ticks(params)) = Spec::parse("ticks:7") else { panic!() };
        assert_eq!(params.instructions, 7);
        let Ok(Spec::Mutex(params)) = Spec::parse("mutex") else { panic!() };
        assert_eq!(params.interval, Nanos::from_millis(10));
        let Ok(spec) = Spec::parse("priority:io-*=10,tid:7=-3,spin=-1") else { panic!() };
        assert_eq!(spec.priority(b"io-3", 1), 10);
        assert_eq!(spec.priority(b"spin", 7), -3);
        assert_eq!(spec.priority(b"spin", 1), -1);
        assert_eq!(spec.priority(b"other", 1), 0);
    }

    /// Of what a user may read: each default is within its range, and each example is one.
    #[test]
    fn the_catalogue_is_true() {
        for about in catalogue() {
            Spec::parse(about.name).unwrap();
            Spec::parse(about.example).unwrap();
            let Takes::Settings(options) = about.takes else { continue };
            for option in options {
                let (low, high) = option.range;
                let [low, high] = [low, high].map(|it| parse_value(option.unit, it).unwrap());
                assert!(option.default.is_none_or(|it| low <= it && it <= high), "{option:?}");
                for end in [option.range.0, option.range.1] {
                    // No more than the credit is worth, which is said in the meaning.
                    let credit = if option.name == "wakeup" { "credit=10s," } else { "" };
                    let text = std::format!("{}:{credit}{}={end}", about.name, option.name);
                    Spec::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
                }
            }
        }
        let Ok(Spec::Adaptive(params)) = Spec::parse(
            "adaptive:slice=1ms,credit=2ms,wakeup=3us,grace=4us,handover=5us,guard=6us,linger=7us",
        ) else {
            panic!()
        };
        let times = [params.wakeup, params.grace, params.handover, params.guard, params.linger];
        assert_eq!(times, [3, 4, 5, 6, 7].map(Nanos::from_micros));
        assert_eq!([params.slice, params.credit], [1, 2].map(Nanos::from_millis));
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, says) in [
            (
                "fair",
                "no policy \"fair\"; there are adaptive, priority, timeout, timer, mutex, fifo, ticks, and stock",
            ),
            (
                "",
                "no policy \"\"; there are adaptive, priority, timeout, timer, mutex, fifo, ticks, and stock",
            ),
            ("timeout:5", "\"5\" is not a time; write a whole number and ns, us, ms or s"),
            ("timeout:1h", "\"1h\" is not a time; write a whole number and ns, us, ms or s"),
            ("timeout:0ms", "interval must be from 1us to 10s"),
            (
                "timeout:99999999999999999s",
                "\"99999999999999999s\" is not a time; write a whole number and ns, us, ms or s",
            ),
            ("ticks:5ms", "\"5ms\" is not a whole number"),
            ("fifo:-1", "\"-1\" is not a whole number"),
            ("ticks:0", "instructions must be from 1 to 1000000000"),
            (
                "mutex:interval=100",
                "\"100\" is not a time; write a whole number and ns, us, ms or s",
            ),
            ("adaptive:slice=1us", "slice must be from 100us to 10s"),
            ("adaptive:wakeup=1s", "wakeup must be from 1us to the credit"),
            (
                "adaptive:size=1us",
                "policy adaptive has no option \"size\"; it takes slice, credit, wakeup, grace, handover, guard, linger",
            ),
            (
                "priority:io=300",
                "\"io=300\" is not a priority; write NAME=N or tid:ID=N with N from -128 to 127",
            ),
            (
                "priority:tid:x=3",
                "\"tid:x=3\" is not a priority; write NAME=N or tid:ID=N with N from -128 to 127",
            ),
        ] {
            assert_eq!(Spec::parse(text).unwrap_err().to_string(), says, "{text}");
        }
    }
}
