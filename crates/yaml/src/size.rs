//! Sizes as people write them: a number of bytes, or `64KiB`, `10MiB`, `1GiB`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::node::Value;

/// The shape of a size in a JSON Schema. The raw field is a [`super::Node`], since it may be a
/// number or a text.
pub struct Size;

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "size".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": r"^[0-9][0-9_]*\s*(B|KiB|MiB|GiB)?$",
        })
    }
}

/// Units, with the power of two that each stands for. Those of a thousand are left out: `KB` is
/// 1000 to some and 1024 to others.
const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)];

impl Size {
    /// The bytes that a value stands for; none if it is no size.
    pub fn parse(value: &Value) -> Option<u64> {
        match value {
            Value::Integer(bytes) => u64::try_from(*bytes).ok(),
            Value::String(text) => parse(text),
            _ => None,
        }
    }

    /// The size that `5MB`, `5M` and `5m` probably stand for: the same number with a unit that is
    /// known.
    pub fn meant_by(text: &str) -> Option<String> {
        let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = text.split_at_checked(unit)?;
        let unit = match unit.to_ascii_lowercase().as_str() {
            "k" | "kb" | "kib" => "KiB",
            "m" | "mb" | "mib" => "MiB",
            "g" | "gb" | "gib" => "GiB",
            _ => return None,
        };
        let meant = format!("{}{unit}", number.trim_end());
        parse(&meant).map(|_| meant)
    }

    /// A size by the largest unit that it is a whole number of.
    pub(super) fn in_words(bytes: u64) -> String {
        let is_whole = |power: u32| bytes > 0 && bytes.trailing_zeros() >= power;
        let unit = UNITS.iter().rev().find(|(_, power)| *power > 0 && is_whole(*power));
        unit.map_or_else(|| bytes.to_string(), |(name, power)| format!("{}{name}", bytes >> power))
    }
}

fn parse(text: &str) -> Option<u64> {
    let (number, power) = UNITS
        .iter()
        .find_map(|(unit, power)| Some((text.strip_suffix(unit)?, *power)))
        .unwrap_or((text, 0));
    let number = number.trim_end();
    if !number.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let bytes: u64 = number.replace('_', "").parse().ok()?;
    bytes.checked_mul(1 << power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        let parse = |text: &str| Size::parse(&Value::String(text.into()));
        for (text, bytes) in [
            ("0", Some(0)),
            ("64KiB", Some(65_536)),
            ("64 KiB", Some(65_536)),
            ("64  KiB", Some(65_536)),
            ("10MiB", Some(10 << 20)),
            ("3GiB", Some(3 << 30)),
            ("100_000", Some(100_000)),
            ("7B", Some(7)),
            ("64 ", Some(64)),
            ("64KB", None),
            ("64kib", None),
            ("-1", None),
            ("+1", None),
            ("1.5MiB", None),
            ("_1", None),
            ("KiB", None),
            ("", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(parse(text), bytes, "{text:?}");
        }
        assert_eq!(Size::parse(&Value::Integer(12)), Some(12));
        assert_eq!(Size::parse(&Value::Integer(-12)), None);
        assert_eq!(Size::parse(&Value::Bool(true)), None);
    }

    #[test]
    fn other_units_are_taken_for_those_that_are_probably_meant() {
        for (text, meant) in [
            ("5MB", Some("5MiB")),
            ("5 m", Some("5MiB")),
            ("5kb", Some("5KiB")),
            ("5x", None),
            ("MB", None),
            ("5", None),
        ] {
            assert_eq!(Size::meant_by(text).as_deref(), meant, "{text:?}");
        }
    }
}
