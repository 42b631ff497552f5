//! A length of time that differs from one time to the next, as it was measured.

use rand::RngCore;
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Steps between the quantiles.
const STEPS: usize = 32;

/// A distribution by its quantiles, the least first and the most last, equally far apart in share; in
/// nanoseconds. Written as one number, or as a list of two and more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency([u32; STEPS + 1]);

impl Latency {
    pub const fn always(ns: u32) -> Latency {
        Latency([ns; STEPS + 1])
    }

    /// From quantiles that are equally far apart; `None`: they are not in order, or there are none.
    pub fn from_quantiles(quantiles: &[u32]) -> Option<Latency> {
        if quantiles.is_empty() || !quantiles.is_sorted() {
            return None;
        }
        let last = quantiles.len() - 1;
        Some(Latency(std::array::from_fn(|step| {
            let place = (step * last) as f64 / STEPS as f64;
            let (low, share) = (place as usize, place.fract());
            let (below, above) =
                (f64::from(quantiles[low]), f64::from(quantiles[(low + 1).min(last)]));
            (below + (above - below) * share).round() as u32
        })))
    }

    pub fn median(&self) -> u64 {
        u64::from(self.0[STEPS / 2])
    }

    /// One of them, drawn.
    pub fn draw(&self, random: &mut impl RngCore) -> u64 {
        if self.0[0] == self.0[STEPS] {
            return u64::from(self.0[0]);
        }
        self.at(random.next_u32())
    }

    /// The one that these random bits stand for; of several things that are long or short together.
    pub fn at(&self, bits: u32) -> u64 {
        let step = bits as usize % STEPS;
        let (low, high) = (u64::from(self.0[step]), u64::from(self.0[step + 1]));
        low + (high - low) * u64::from(bits >> 16) / (1 << 16)
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0[0] == self.0[STEPS] {
            return serializer.serialize_u32(self.0[0]);
        }
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for quantile in &self.0 {
            list.serialize_element(quantile)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Latency, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Latency;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("nanoseconds, or a list of quantiles of them, the least first")
            }

            fn visit_i64<E: Error>(self, ns: i64) -> Result<Latency, E> {
                let ns = u32::try_from(ns);
                ns.map(Latency::always).map_err(|_| E::custom("from 0 to 4000000000 nanoseconds"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Latency, A::Error> {
                let mut quantiles = Vec::new();
                while let Some(quantile) = list.next_element::<u32>()? {
                    quantiles.push(quantile);
                }
                Latency::from_quantiles(&quantiles)
                    .ok_or_else(|| A::Error::custom("quantiles go up from the least"))
            }
        }
        deserializer.deserialize_any(Reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn what_is_drawn_has_the_quantiles_that_were_given() {
        let latency = Latency::from_quantiles(&[100, 200, 1_000]).unwrap();
        assert_eq!(latency.median(), 200);
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let mut drawn: Vec<_> = (0..10_000).map(|_| latency.draw(&mut random)).collect();
        drawn.sort_unstable();
        assert!((195..=210).contains(&drawn[5_000]), "{}", drawn[5_000]);
        assert!((145..=155).contains(&drawn[2_500]), "{}", drawn[2_500]);
        assert!(drawn[0] >= 100 && drawn[9_999] <= 1_000 && drawn[9_900] > 950);
        assert_eq!(Latency::always(7).draw(&mut random), 7);
        assert_eq!(Latency::from_quantiles(&[2, 1]), None);
    }
}
