//! Lengths of time that are drawn.

use rand::{Rng, RngCore};
use rand_distr::Distribution as _;
use rand_distr::{Exp1, LogNormal, Pareto};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::time::Time;

/// Where a length of time is drawn from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Distribution {
    /// Always the same: `"5us"`.
    Constant(Time),
    /// Any between two: `{ uniform = ["1us", "5us"] }`.
    Uniform(Time, Time),
    /// With this mean: `{ exponential = "1ms" }`.
    Exponential(Time),
    /// With this median, and this deviation of its logarithm: `{ lognormal = ["1ms", 0.5] }`.
    LogNormal(Time, f64),
    /// At least this, and with this exponent, more than 1: `{ pareto = ["1ms", 1.5] }`.
    Pareto(Time, f64),
}

/// No draw is longer than this, in nanoseconds: an hour.
const LONGEST_NS: f64 = 3.6e12;

impl Distribution {
    /// A length of time in nanoseconds.
    pub fn draw(&self, random: &mut impl RngCore) -> u64 {
        let ns = match *self {
            Distribution::Constant(time) => return time.0,
            Distribution::Uniform(low, high) => return random.random_range(low.0..=high.0),
            Distribution::Exponential(mean) => {
                let unit: f64 = Exp1.sample(random);
                unit * mean.0 as f64
            }
            Distribution::LogNormal(median, sigma) => match LogNormal::new(0.0, sigma) {
                Ok(unit) => unit.sample(random) * median.0 as f64,
                Err(_) => median.0 as f64,
            },
            Distribution::Pareto(least, exponent) => match Pareto::new(1.0, exponent) {
                Ok(unit) => unit.sample(random) * least.0 as f64,
                Err(_) => least.0 as f64,
            },
        };
        ns.min(LONGEST_NS).round() as u64
    }

    pub(crate) fn is_nothing(&self) -> bool {
        match *self {
            Distribution::Constant(time) | Distribution::Exponential(time) => time.0 == 0,
            Distribution::Uniform(_, high) => high.0 == 0,
            Distribution::LogNormal(time, _) | Distribution::Pareto(time, _) => time.0 == 0,
        }
    }
}

const KINDS: &[&str] = &["uniform", "exponential", "lognormal", "pareto"];

struct Reads;

impl<'de> Visitor<'de> for Reads {
    type Value = Distribution;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a time as 5us, or a distribution as { exponential = \"1ms\" }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Distribution, E> {
        Time::parse(text).map(Distribution::Constant).ok_or_else(|| {
            E::custom(format!("{text:?} is not a time; write one as 5us, 1.5ms or 2s"))
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Distribution, A::Error> {
        let Some(kind) = map.next_key::<String>()? else {
            return Err(A::Error::custom("a distribution needs a name"));
        };
        let read = match kind.as_str() {
            "uniform" => {
                let (low, high): (Time, Time) = map.next_value()?;
                if low > high {
                    return Err(A::Error::custom(
                        "uniform: the first time must not be the longer one",
                    ));
                }
                Distribution::Uniform(low, high)
            }
            "exponential" => Distribution::Exponential(map.next_value()?),
            "lognormal" => {
                let (median, sigma): (Time, f64) = map.next_value()?;
                if !(0.0..=10.0).contains(&sigma) {
                    return Err(A::Error::custom("lognormal: the deviation must be from 0 to 10"));
                }
                Distribution::LogNormal(median, sigma)
            }
            "pareto" => {
                let (least, exponent): (Time, f64) = map.next_value()?;
                if !(exponent > 1.0 && exponent.is_finite()) {
                    return Err(A::Error::custom("pareto: the exponent must be more than 1"));
                }
                Distribution::Pareto(least, exponent)
            }
            other => {
                return Err(A::Error::custom(format!(
                    "no distribution {other:?}; there are {}, and a plain time",
                    KINDS.join(", ")
                )));
            }
        };
        match map.next_key::<String>()? {
            None => Ok(read),
            Some(more) => Err(A::Error::custom(format!("{kind} and {more}: one is enough"))),
        }
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Distribution, D::Error> {
        deserializer.deserialize_any(Reads)
    }
}

/// How long a thread computes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Amount {
    /// Until the workload ends: `"forever"`.
    Forever,
    Of(Distribution),
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        struct ReadsAmount;
        impl<'de> Visitor<'de> for ReadsAmount {
            type Value = Amount;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("forever, or ")?;
                Reads.expecting(f)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Amount, E> {
                if text == "forever" {
                    return Ok(Amount::Forever);
                }
                Reads.visit_str(text).map(Amount::Of)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Amount, A::Error> {
                Reads.visit_map(map).map(Amount::Of)
            }
        }
        deserializer.deserialize_any(ReadsAmount)
    }
}
