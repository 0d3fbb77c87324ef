//! Amounts of money without floats.
//!
//! Providers price a million tokens in dollars with up to six decimals, or one token with up to twelve. Both are whole
//! numbers of pico-dollars (10⁻¹² USD) a token, so every cost is an exact product.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Pico-dollars in a dollar.
const PICO_PER_USD: u128 = 1_000_000_000_000;
/// Decimals of a dollar that a price of one token may have.
const TOKEN_DECIMALS: usize = 12;
/// Decimals of a dollar that a price of a million tokens may have.
const MILLION_DECIMALS: usize = 6;
/// Largest price: a thousand dollars a token are no price but a broken list.
const MAX_PRICE_PICO_USD: u64 = 1_000_000_000_000_000;
/// Decimals of a dollar that people are shown.
const SHOWN_DECIMALS: usize = 6;

/// A text that is no price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no price in US dollars with at most {decimals} decimals")]
pub struct MoneyError {
    /// What was read.
    pub text: String,
    /// Most decimals.
    pub decimals: usize,
}

/// What one token costs, in pico-dollars, which is the same number as micro-dollars for a million tokens.
///
/// ```
/// use hermes_providers::catalogue::Price;
///
/// let price: Price = "0.0028".parse()?; // dollars for a million tokens
/// assert_eq!(price, Price::from_usd_per_token("0.0000000028")?);
/// assert_eq!(price.of(1_000_000).to_string(), "$0.0028");
/// # Ok::<(), hermes_providers::catalogue::MoneyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Price(u64);

impl Price {
    /// From dollars for one token, as decimal text (OpenRouter's list).
    ///
    /// # Errors
    /// [`MoneyError`] for anything else, a sign or an exponent among it.
    pub fn from_usd_per_token(text: &str) -> Result<Self, MoneyError> {
        decimal(text, TOKEN_DECIMALS).map(Self)
    }

    /// From whole pico-dollars for one token.
    #[must_use]
    pub const fn from_pico_usd(pico: u64) -> Self {
        Self(pico)
    }

    /// Whole pico-dollars for one token.
    #[must_use]
    pub const fn pico_usd(self) -> u64 {
        self.0
    }

    /// What so many tokens cost. Exact.
    #[must_use]
    pub fn of(self, tokens: u64) -> Money {
        Money(u128::from(self.0) * u128::from(tokens))
    }
}

impl FromStr for Price {
    type Err = MoneyError;

    /// From dollars for a million tokens, as decimal text.
    fn from_str(text: &str) -> Result<Self, MoneyError> {
        decimal(text, MILLION_DECIMALS).map(Self)
    }
}

impl fmt::Display for Price {
    /// Dollars for a million tokens, as [`FromStr`] reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, u128::from(self.0), MILLION_DECIMALS)
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An amount in pico-dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Money(u128);

impl Money {
    /// Whole pico-dollars.
    #[must_use]
    pub const fn pico_usd(self) -> u128 {
        self.0
    }

    /// Both together; the largest amount when that is too much.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Money {
    /// With a dollar sign, at least two and at most six decimals, the last one rounded half up; what is less than that, but
    /// not nothing, is said so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = PICO_PER_USD / 10_u128.pow(u32::try_from(SHOWN_DECIMALS).unwrap_or(0));
        let shown = self.0.saturating_add(step / 2) / step;
        if shown == 0 && self.0 > 0 {
            return f.write_str("under $0.000001");
        }
        f.write_str("$")?;
        write_decimal(f, shown, SHOWN_DECIMALS)
    }
}

impl Serialize for Money {
    /// Dollars as decimal text, all decimals.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Exact(u128);
        impl fmt::Display for Exact {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_decimal(f, self.0, TOKEN_DECIMALS)
            }
        }
        serializer.collect_str(&Exact(self.0))
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let units = digits(&text, TOKEN_DECIMALS).and_then(|digits| digits.parse().ok());
        units.map(Self).ok_or_else(|| serde::de::Error::custom(MoneyError { text, decimals: TOKEN_DECIMALS }))
    }
}

/// `units` of the last of `decimals` decimals, without zeros at the end beyond the second decimal.
fn write_decimal(f: &mut fmt::Formatter<'_>, units: u128, decimals: usize) -> fmt::Result {
    let scale = 10_u128.pow(u32::try_from(decimals).unwrap_or(0));
    let fraction = format!("{:0decimals$}", units % scale);
    let kept = fraction.trim_end_matches('0').len().max(2);
    write!(f, "{}.{}", units / scale, fraction.get(..kept).unwrap_or(&fraction))
}

/// A price as a count of its last decimal.
fn decimal(text: &str, decimals: usize) -> Result<u64, MoneyError> {
    let units = digits(text, decimals).and_then(|digits| digits.parse().ok());
    let wrong = || MoneyError { text: text.chars().take(40).collect(), decimals };
    units.filter(|units| *units <= MAX_PRICE_PICO_USD).ok_or_else(wrong)
}

/// All digits without the point, so many of them behind it. `None` for what is not digits with one point at most, or has
/// more decimals that are not zero.
fn digits(text: &str, decimals: usize) -> Option<String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let good = !whole.is_empty() && plain(whole) && plain(fraction) && fraction.len() <= decimals;
    (good && !text.ends_with('.')).then(|| format!("{whole}{fraction:0<decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_exactly_and_written_as_they_were_read() {
        for (text, pico, shown) in [
            ("0", 0, "0.00"),
            ("3", 3_000_000, "3.00"),
            ("2.50", 2_500_000, "2.50"),
            ("0.003625", 3_625, "0.003625"),
            ("600.00", 600_000_000, "600.00"),
            ("0.0280000000", 28_000, "0.028"),
        ] {
            let price: Price = text.parse().unwrap();
            assert_eq!((price.pico_usd(), price.to_string().as_str()), (pico, shown), "{text}");
            assert_eq!(price.to_string().parse::<Price>().unwrap(), price);
        }
        assert_eq!(Price::from_usd_per_token("0.00000125").unwrap().to_string(), "1.25");
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for text in
            ["", "-1", "+1", "1e-6", "0.0000001", ".5", "1.", "1,5", "1.2.3", "NaN", "99999999999999999999", "٣"]
        {
            assert!(text.parse::<Price>().is_err(), "{text}");
        }
        assert!(Price::from_usd_per_token("-1").is_err());
        assert!(Price::from_usd_per_token("0.0000000000001").is_err(), "finer than a pico-dollar");
    }

    #[test]
    fn amounts_are_exact_and_shown_rounded() {
        let price: Price = "0.0028".parse().unwrap();
        assert_eq!(price.of(1).pico_usd(), 2_800);
        for (pico, shown) in [
            (0, "$0.00"),
            (1, "under $0.000001"),
            (499_999, "under $0.000001"),
            (500_000, "$0.000001"),
            (1_500_000, "$0.000002"),
            (12_345_600_000, "$0.012346"),
            (1_000_000_000_000, "$1.00"),
            (1_230_000_000_000, "$1.23"),
        ] {
            assert_eq!(Money(pico).to_string(), shown, "{pico}");
        }
        let text = serde_json::to_string(&Money(2_800)).unwrap();
        assert_eq!(text, "\"0.0000000028\"");
        assert_eq!(serde_json::from_str::<Money>(&text).unwrap(), Money(2_800));
        assert!(serde_json::from_str::<Money>("\"-1\"").is_err());
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let dear = Price::from_pico_usd(u64::MAX).of(u64::MAX);
        assert_eq!(dear.plus(dear).plus(dear).pico_usd(), u128::MAX);
        assert!(dear.to_string().starts_with('$'));
    }
}
