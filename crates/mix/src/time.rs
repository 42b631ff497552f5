//! Lengths of time as text.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A length of time in nanoseconds, written as `5us`, `1.5ms`, `2s`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// `None`: it is no time, or longer than 292 years.
    pub fn parse(text: &str) -> Option<Time> {
        let end = text.find(|byte: char| byte.is_ascii_alphabetic())?;
        let unit = match &text[end..] {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return None,
        };
        let number: f64 = text[..end].parse().ok()?;
        let ns = number * unit;
        let fits = (0.0..9e18).contains(&ns) && !text.starts_with(['+', '-']);
        fits.then_some(Time(ns.round() as u64))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        Time::parse(&text).ok_or_else(|| {
            D::Error::custom(format!("{text:?} is not a time; write one as 5us, 1.5ms or 2s"))
        })
    }
}
