//! Values of a policy as YAML, in flow style: `{ per: client.ip, rate: 5/second }`.

use std::{fmt, time::Duration};

use tollgate_yaml::literal;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// A text, in quotes where YAML needs them.
    Text(String),
    /// A number, or true or false.
    Word(String),
    /// A list.
    List(Vec<Flow>),
    /// A mapping, in this order.
    Fields(Vec<(String, Flow)>),
}

impl Flow {
    /// A mapping.
    pub(crate) fn fields<const N: usize>(fields: [(&str, Flow); N]) -> Self {
        Flow::Fields(fields.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// A list.
    pub(crate) fn list<T: Into<Flow>>(items: impl IntoIterator<Item = T>) -> Self {
        Flow::List(items.into_iter().map(Into::into).collect())
    }

    /// The mapping with another field.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Flow>) -> Self {
        if let Flow::Fields(fields) = &mut self {
            fields.push((name.to_owned(), value.into()));
        }
        self
    }

    /// The mapping with another field, if it has a value.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<impl Into<Flow>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The mapping with a list, unless that is empty.
    #[must_use]
    pub(crate) fn with_list<T: Into<Flow>>(
        self,
        name: &str,
        items: impl IntoIterator<Item = T>,
    ) -> Self {
        let items: Vec<Flow> = items.into_iter().map(Into::into).collect();
        self.with_some(name, (!items.is_empty()).then_some(Flow::List(items)))
    }

    /// The mapping with another one, unless that is empty.
    #[must_use]
    pub(crate) fn with_fields(self, name: &str, fields: Vec<(String, Flow)>) -> Self {
        self.with_some(name, (!fields.is_empty()).then_some(Flow::Fields(fields)))
    }

    /// Whether it is a mapping without fields.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Flow::Fields(fields) if fields.is_empty())
    }
}

impl From<&str> for Flow {
    fn from(text: &str) -> Self {
        Flow::Text(text.to_owned())
    }
}

impl From<String> for Flow {
    fn from(text: String) -> Self {
        Flow::Text(text)
    }
}

impl From<u64> for Flow {
    fn from(number: u64) -> Self {
        Flow::Word(number.to_string())
    }
}

impl From<bool> for Flow {
    fn from(value: bool) -> Self {
        Flow::Word(value.to_string())
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flow::Text(text) => f.write_str(&quoted(text)),
            Flow::Word(word) => f.write_str(word),
            Flow::List(items) => {
                let items: Vec<String> = items.iter().map(Flow::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Flow::Fields(_) if self.is_empty() => f.write_str("{}"),
            Flow::Fields(fields) => {
                let field = |(name, value): &(String, Flow)| format!("{}: {value}", quoted(name));
                write!(f, "{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Units of Envoy's rate limits, with the windows that they are and their seconds: a month has 30
/// days there and a year 365, from multiples of so many seconds since 1970.
pub(crate) const UNITS: [(&str, &str, u64); 7] = [
    ("Second", "second", 1),
    ("Minute", "minute", 60),
    ("Hour", "hour", 3_600),
    ("Day", "day", 86_400),
    ("Week", "7d", 604_800),
    ("Month", "30d", 2_592_000),
    ("Year", "365d", 31_536_000),
];

/// A window as a rate has it: `second`, `minute`, `90s`, `500ms`.
pub(crate) fn window(time: Duration) -> String {
    let millis = time.as_millis();
    let named = [(1000, "second"), (60_000, "minute"), (3_600_000, "hour"), (86_400_000, "day")];
    match named.into_iter().find(|(length, _)| *length == millis) {
        Some((_, name)) => name.to_owned(),
        None if time.subsec_millis() == 0 => format!("{}s", time.as_secs()),
        None => format!("{millis}ms"),
    }
}

/// A text in YAML, in quotes if it needs them.
pub(crate) fn quoted(text: &str) -> String {
    let begins_plainly =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '/' || letter == '_';
    let is_plain = text.starts_with(begins_plainly)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./*%".contains(&byte))
        // Numbers of all kinds: `7`, `1e5`, `nan`, `0x1F`, `1_000`.
        && text.replace('_', "").parse::<f64>().is_err()
        && !["0x", "0o", "0b"].iter().any(|base| text.starts_with(base))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&&*text.to_ascii_lowercase());
    match is_plain {
        true => text.to_owned(),
        false => literal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_yaml_needs_it() {
        for (text, expected) in [
            ("user", "user"),
            ("true", "\"true\""),
            ("7", "\"7\""),
            ("1_000", "\"1_000\""),
            ("0x1F", "\"0x1F\""),
            ("5/second", "5/second"),
            ("/a/**", "/a/**"),
            ("*.example", "\"*.example\""),
            ("a: b", "\"a: b\""),
            ("${HOME}", "\"$${HOME}\""),
            ("{id}", "\"{id}\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn values_are_written_in_flow_style() {
        let limit = Flow::fields([("per", "client.ip".into()), ("rate", "5/second".into())])
            .with("burst", 26)
            .with("methods", Flow::list(["GET", "y"]));
        let expected = "{ per: client.ip, rate: 5/second, burst: 26, methods: [GET, \"y\"] }";
        assert_eq!(limit.to_string(), expected);
        assert_eq!(Flow::fields([]).to_string(), "{}");
    }
}
