//! Every policy behind one type, and the one string that names a policy and its parameters in
//! every driver.

use core::fmt;

use crate::adaptive::{self, Adaptive};
use crate::catalogue::{ADAPTIVE, TIMEOUT, TimeOption, catalogue};
use crate::priority::Priority;
use crate::timeout::{self, Timeout};
use crate::{Actions, Event, Nanos, Policy, Slot, WaiterId};

/// A policy with its parameters, as written by a user; made into a machine by [`Spec::build`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spec<'s> {
    Timeout(timeout::Params),
    Priority(Rules<'s>),
    Adaptive(adaptive::Params),
}

/// Why a policy string means nothing; its text is fit for a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError<'s> {
    UnknownPolicy(&'s str),
    UnknownOption { policy: &'static str, option: &'s str, options: &'static [TimeOption] },
    NotATime(&'s str),
    OutOfRange { option: &'s str, low: &'static str, high: &'static str },
    NotARule(&'s str),
}

impl fmt::Display for ParseError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::UnknownPolicy(name) => {
                write!(f, "no policy {name:?}; there are ")?;
                for about in catalogue() {
                    write!(f, "{}, ", about.name)?;
                }
                f.write_str("and stock")
            }
            ParseError::UnknownOption { policy, option, options } => {
                write!(f, "policy {policy} has no option {option:?}; it takes")?;
                for (place, option) in options.iter().enumerate() {
                    write!(f, "{} {}", if place == 0 { "" } else { "," }, option.name)?;
                }
                Ok(())
            }
            ParseError::NotATime(text) => {
                write!(f, "{text:?} is not a time; write a whole number and ns, us, ms or s")
            }
            ParseError::OutOfRange { option, low, high } => {
                write!(f, "{option} must be from {low} to {high}")
            }
            ParseError::NotARule(text) => write!(
                f,
                "{text:?} is not a priority; write NAME=N or tid:ID=N with N from -128 to 127"
            ),
        }
    }
}

impl core::error::Error for ParseError<'_> {}

/// The rules of `priority`: checked text `NAME=N,tid:ID=N,…`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules<'s> {
    text: &'s str,
}

impl<'s> Rules<'s> {
    fn parse(text: &'s str) -> Result<Rules<'s>, ParseError<'s>> {
        for rule in parts(text) {
            Rules::split(rule).ok_or(ParseError::NotARule(rule))?;
        }
        Ok(Rules { text })
    }

    fn split(rule: &str) -> Option<(&str, i8)> {
        let (pattern, priority) = cut(rule, b'=')?;
        let valid_id = pattern.strip_prefix("tid:").is_none_or(|id| id.parse::<u32>().is_ok());
        (!pattern.is_empty() && valid_id).then_some((pattern, priority.parse().ok()?))
    }

    /// The priority of a thread: that of the first rule that matches, else 0. Names are compared
    /// as bytes: a thread may carry any.
    pub fn priority(&self, name: &[u8], native_id: u32) -> i8 {
        parts(self.text)
            .filter_map(Rules::split)
            .find(|(pattern, _)| self.fits(pattern, name, native_id))
            .map_or(0, |(_, priority)| priority)
    }

    /// What stands before each priority.
    pub fn patterns(&self) -> impl Iterator<Item = &'s str> {
        parts(self.text).filter_map(Rules::split).map(|(pattern, _)| pattern)
    }

    /// Whether a thread is one that `pattern` is for.
    pub fn fits(&self, pattern: &str, name: &[u8], native_id: u32) -> bool {
        match (pattern.strip_prefix("tid:"), pattern.strip_suffix('*')) {
            (Some(id), _) => id.parse() == Ok(native_id),
            (None, Some(start)) => name.starts_with(start.as_bytes()),
            (None, None) => name == pattern.as_bytes(),
        }
    }
}

/// What stands before and behind the first `mark`. The standard library's own search carries a
/// check that can panic as far as the compiler knows, and the preloaded library has none.
fn cut(text: &str, mark: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == mark)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The parts between commas, without empty ones.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    core::iter::from_fn(move || {
        (!rest.is_empty()).then(|| {
            let (part, behind) = cut(rest, b',').unwrap_or((rest, ""));
            rest = behind;
            part
        })
    })
    .filter(|part| !part.is_empty())
}

fn parse_time(text: &str) -> Result<Nanos, ParseError<'_>> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (Some(digits), Some(unit)) = (text.get(..end), text.get(end..)) else {
        return Err(ParseError::NotATime(text));
    };
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(ParseError::NotATime(text)),
    };
    let number: u64 = digits.parse().map_err(|_| ParseError::NotATime(text))?;
    number.checked_mul(unit).map(Nanos).ok_or(ParseError::NotATime(text))
}

/// Reads times into `places`, which are those of `options` in that order.
fn parse_times<'s, const N: usize>(
    policy: &'static str,
    text: &'s str,
    options: &'static [TimeOption; N],
    mut places: [&mut Nanos; N],
) -> Result<(), ParseError<'s>> {
    for part in parts(text) {
        // A lone time is the policy's first option: `timeout:1ms`.
        let (name, value) = match cut(part, b'=') {
            Some(pair) => pair,
            None => (options.first().map_or("", |option| option.name), part),
        };
        let (option, place) = options
            .iter()
            .zip(&mut places)
            .find(|(option, _)| option.name == name)
            .ok_or(ParseError::UnknownOption { policy, option: name, options })?;
        let time = parse_time(value)?;
        let (low, high) = option.range;
        if time < parse_time(low)? || time > parse_time(high)? {
            return Err(ParseError::OutOfRange { option: option.name, low, high });
        }
        **place = time;
    }
    Ok(())
}

impl<'s> Spec<'s> {
    /// Reads `NAME` or `NAME:OPTIONS`.
    ///
    /// # Errors
    /// A [`ParseError`] that says what is wrong and what would be right.
    pub fn parse(text: &'s str) -> Result<Spec<'s>, ParseError<'s>> {
        let (name, options) = cut(text, b':').unwrap_or((text, ""));
        match name {
            "timeout" => {
                let mut interval = Nanos::MAX;
                parse_times("timeout", options, TIMEOUT, [&mut interval])?;
                let interval = (interval != Nanos::MAX).then_some(interval);
                Ok(Spec::Timeout(timeout::Params { interval }))
            }
            "priority" => Rules::parse(options).map(Spec::Priority),
            "adaptive" => {
                // What is left alone follows the credit down.
                const FOLLOWS: Nanos = Nanos::MAX;
                let mut p = adaptive::Params { wakeup: FOLLOWS, ..adaptive::Params::DEFAULT };
                let places = [
                    &mut p.slice,
                    &mut p.credit,
                    &mut p.wakeup,
                    &mut p.grace,
                    &mut p.handover,
                    &mut p.guard,
                    &mut p.linger,
                ];
                parse_times("adaptive", options, ADAPTIVE, places)?;
                if p.wakeup == FOLLOWS {
                    p.wakeup = adaptive::Params::DEFAULT.wakeup.min(p.credit);
                }
                if p.wakeup > p.credit {
                    let (low, high) = ("1us", "the credit");
                    return Err(ParseError::OutOfRange { option: "wakeup", low, high });
                }
                Ok(Spec::Adaptive(p))
            }
            _ => Err(ParseError::UnknownPolicy(name)),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Spec::Timeout(_) => "timeout",
            Spec::Priority(_) => "priority",
            Spec::Adaptive(_) => "adaptive",
        }
    }

    /// Whether a thread's name makes a difference.
    pub fn reads_names(&self) -> bool {
        matches!(self, Spec::Priority(_))
    }

    /// The static priority of a thread; 0 for policies without any.
    pub fn priority(&self, name: &[u8], native_id: u32) -> i8 {
        match self {
            Spec::Priority(rules) => rules.priority(name, native_id),
            Spec::Timeout(_) | Spec::Adaptive(_) => 0,
        }
    }

    /// Makes the machine for one lock. `cores`: how many threads can run at a time; `slots`: a
    /// record a thread, at first all empty.
    pub fn build<'a>(&self, cores: u32, slots: &'a mut [Slot]) -> AnyPolicy<'a> {
        match *self {
            Spec::Timeout(params) => AnyPolicy::Timeout(Timeout::new(params, slots)),
            Spec::Priority(_) => AnyPolicy::Priority(Priority::new(slots)),
            Spec::Adaptive(params) => AnyPolicy::Adaptive(Adaptive::new(params, cores, slots)),
        }
    }
}

/// One of the policies.
#[derive(Debug)]
pub enum AnyPolicy<'a> {
    Timeout(Timeout<'a>),
    Priority(Priority<'a>),
    Adaptive(Adaptive<'a>),
}

impl Policy for AnyPolicy<'_> {
    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        match self {
            AnyPolicy::Timeout(policy) => policy.step(now, event, actions),
            AnyPolicy::Priority(policy) => policy.step(now, event, actions),
            AnyPolicy::Adaptive(policy) => policy.step(now, event, actions),
        }
    }

    fn computes(&self, who: WaiterId) -> bool {
        match self {
            AnyPolicy::Timeout(policy) => policy.computes(who),
            AnyPolicy::Priority(policy) => policy.computes(who),
            AnyPolicy::Adaptive(policy) => policy.computes(who),
        }
    }

    fn bound(&self, threads: u32, check: Nanos) -> Option<Nanos> {
        match self {
            AnyPolicy::Timeout(policy) => policy.bound(threads, check),
            AnyPolicy::Priority(policy) => policy.bound(threads, check),
            AnyPolicy::Adaptive(policy) => policy.bound(threads, check),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Takes;
    use std::string::ToString;

    #[test]
    fn options_are_read() {
        let Ok(Spec::Timeout(params)) = Spec::parse("timeout:1ms") else { panic!() };
        assert_eq!(params.interval, Some(Nanos::from_millis(1)));
        let Ok(Spec::Adaptive(params)) = Spec::parse("adaptive:slice=10ms,grace=0us") else {
            panic!()
        };
        assert_eq!((params.slice, params.grace), (Nanos::from_millis(10), Nanos::ZERO));
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
            let Takes::Times(options) = about.takes else { continue };
            for option in options {
                let (low, high) = option.range;
                let (low, high) = (parse_time(low).unwrap(), parse_time(high).unwrap());
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
            ("fair", "no policy \"fair\"; there are adaptive, priority, timeout, and stock"),
            ("", "no policy \"\"; there are adaptive, priority, timeout, and stock"),
            ("timeout:5", "\"5\" is not a time; write a whole number and ns, us, ms or s"),
            ("timeout:1h", "\"1h\" is not a time; write a whole number and ns, us, ms or s"),
            ("timeout:0ms", "interval must be from 1us to 10s"),
            (
                "timeout:99999999999999999s",
                "\"99999999999999999s\" is not a time; write a whole number and ns, us, ms or s",
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
