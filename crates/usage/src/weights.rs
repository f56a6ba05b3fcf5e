//! What a token costs, by its kind.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::tokens::Tokens;

/// Units that a token of each kind costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// One of the prompt.
    pub input: Weight,
    /// One that is read from a cache.
    pub cached: Weight,
    /// One that is written into a cache.
    pub cache_write: Weight,
    /// One that the model makes.
    pub output: Weight,
}

/// A factor with up to six decimal places. It is no floating-point number: ten times a tenth has to
/// be one, for costs that are rounded up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight {
    millionths: u64,
}

/// Why a text is no weight.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("no number from 0 to {MAX_WEIGHT} with up to 6 decimal places")]
pub struct BadWeight;

const DECIMALS: usize = 6;
const ONE: u64 = 1_000_000;

/// The highest weight.
const MAX_WEIGHT: u64 = 1_000_000;

impl Weight {
    /// A unit each.
    pub const ONE: Weight = Weight { millionths: ONE };

    /// So many times this, rounded up.
    pub fn times(self, count: u64) -> u64 {
        rounded_up(self.exactly(count))
    }

    /// So many times this, times so many, of several, rounded up once.
    pub fn sum_of_products(parts: impl IntoIterator<Item = (Weight, Weight, u64)>) -> u64 {
        let exactly = |(one, other, count): (Weight, Weight, u64)| {
            let product = u128::from(one.millionths) * u128::from(other.millionths);
            product.saturating_mul(count.into())
        };
        let sum = parts.into_iter().map(exactly).fold(0, u128::saturating_add);
        rounded_up(sum.div_ceil(ONE.into()))
    }

    fn exactly(self, count: u64) -> u128 {
        u128::from(self.millionths) * u128::from(count)
    }
}

/// Units for so many millionths.
fn rounded_up(millionths: u128) -> u64 {
    u64::try_from(millionths.div_ceil(ONE.into())).unwrap_or(u64::MAX)
}

impl FromStr for Weight {
    type Err = BadWeight;

    fn from_str(text: &str) -> Result<Self, BadWeight> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(decimals) || decimals.len() > DECIMALS {
            return Err(BadWeight);
        }
        let whole: u64 = whole.parse().map_err(|_| BadWeight)?;
        let fraction: u64 = format!("{decimals:0<DECIMALS$}").parse().map_err(|_| BadWeight)?;
        let millionths = whole.checked_mul(ONE).and_then(|whole| whole.checked_add(fraction));
        match millionths {
            Some(millionths) if millionths <= MAX_WEIGHT * ONE => Ok(Weight { millionths }),
            _ => Err(BadWeight),
        }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.millionths / ONE, self.millionths % ONE);
        let decimals = format!("{fraction:06}");
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            decimals => write!(f, "{whole}.{decimals}"),
        }
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Default for Weights {
    fn default() -> Self {
        let one = Weight::ONE;
        Weights { input: one, cached: one, cache_write: one, output: one }
    }
}

impl Weights {
    /// What tokens cost, rounded up once, over all kinds.
    pub fn cost(&self, tokens: &Tokens) -> u64 {
        let parts = [
            (self.input, tokens.input),
            (self.cached, tokens.cached),
            (self.cache_write, tokens.cache_write),
            (self.output, tokens.output),
        ];
        let exactly = |(weight, count): (Weight, u64)| weight.exactly(count);
        rounded_up(parts.into_iter().map(exactly).fold(0, u128::saturating_add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(text: &str) -> Weight {
        text.parse().unwrap()
    }

    #[test]
    fn weights_are_written_as_they_are_read() {
        for text in ["0", "1", "0.1", "1.25", "0.000001", "1000000"] {
            assert_eq!(weight(text).to_string(), text);
        }
        for text in ["", "-1", "1.", ".5", "0.0000001", "1e3", "1000001", "one"] {
            assert_eq!(text.parse::<Weight>(), Err(BadWeight), "{text}");
        }
    }

    #[test]
    fn products_are_rounded_up_once() {
        let sum = |parts: &[(&str, &str, u64)]| {
            let parts =
                parts.iter().map(|(one, other, count)| (weight(one), weight(other), *count));
            Weight::sum_of_products(parts)
        };
        assert_eq!(sum(&[("0.25", "1", 400)]), 100);
        assert_eq!(sum(&[("0.25", "1", 401)]), 101);
        assert_eq!(sum(&[("0.25", "0.1", 1), ("1", "4", 100)]), 401);
        assert_eq!(sum(&[("0.5", "0.5", 2), ("0.5", "0.5", 2)]), 1);
        assert_eq!(sum(&[("1000000", "1000000", u64::MAX)]), u64::MAX);
    }

    #[test]
    fn costs_are_exact_and_rounded_up_once() {
        let weights = Weights {
            input: weight("1"),
            cached: weight("0.1"),
            cache_write: weight("1.25"),
            output: weight("4"),
        };
        let cost = |input, cached, cache_write, output| {
            weights.cost(&Tokens { input, cached, cache_write, output })
        };
        assert_eq!(cost(0, 10, 0, 0), 1);
        assert_eq!(cost(0, 30, 0, 0), 3);
        assert_eq!(cost(0, 31, 0, 0), 4);
        assert_eq!(cost(5, 5, 2, 3), 20);
        assert_eq!(cost(u64::MAX, 0, 0, u64::MAX), u64::MAX);
    }
}
