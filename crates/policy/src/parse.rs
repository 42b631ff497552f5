//! The one string that names a policy and its parameters in every driver, and what may be wrong with
//! it.

use core::fmt;

use crate::catalogue::{Setting, Unit, catalogue};

/// Why a policy string means nothing; its text is fit for a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError<'s> {
    UnknownPolicy(&'s str),
    UnknownOption { policy: &'static str, option: &'s str, options: &'static [Setting] },
    NotATime(&'s str),
    NotACount(&'s str),
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
            ParseError::NotACount(text) => write!(f, "{text:?} is not a whole number"),
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
    pub(crate) fn parse(text: &'s str) -> Result<Rules<'s>, ParseError<'s>> {
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
pub(crate) fn cut(text: &str, mark: u8) -> Option<(&str, &str)> {
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

fn parse_time(text: &str) -> Result<u64, ParseError<'_>> {
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
    number.checked_mul(unit).ok_or(ParseError::NotATime(text))
}

pub(crate) fn parse_value(unit: Unit, text: &str) -> Result<u64, ParseError<'_>> {
    match unit {
        Unit::Time => parse_time(text),
        Unit::Instructions => text.parse().map_err(|_| ParseError::NotACount(text)),
    }
}

/// Reads numbers into `places`, which are those of `settings` in that order.
pub(crate) fn parse_settings<'s, const N: usize>(
    policy: &'static str,
    text: &'s str,
    settings: &'static [Setting; N],
    mut places: [&mut u64; N],
) -> Result<(), ParseError<'s>> {
    for part in parts(text) {
        // A lone number is the policy's first setting: `timeout:1ms`.
        let (name, value) = match cut(part, b'=') {
            Some(pair) => pair,
            None => (settings.first().map_or("", |setting| setting.name), part),
        };
        let (setting, place) = settings
            .iter()
            .zip(&mut places)
            .find(|(setting, _)| setting.name == name)
            .ok_or(ParseError::UnknownOption { policy, option: name, options: settings })?;
        let value = parse_value(setting.unit, value)?;
        let (low, high) = setting.range;
        if value < parse_value(setting.unit, low)? || value > parse_value(setting.unit, high)? {
            return Err(ParseError::OutOfRange { option: setting.name, low, high });
        }
        **place = value;
    }
    Ok(())
}
