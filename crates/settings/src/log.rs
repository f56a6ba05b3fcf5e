//! Settings of the two logs: lines about requests on standard output, events on standard error.

use std::{num::NonZeroU32, path::Path};

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_keyword::{Keyword, keywords};
use tollgate_observe::access_log::{AccessLogSettings, Format, Only};
use tollgate_yaml::{Check, Choice, Document, Sources, Spanned, Value};

use super::{
    Checker,
    configuration::{entry, read_text},
};

/// How requests are logged.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "access_log section")]
pub(super) struct RawAccessLog {
    /// How a line looks: `text` or `json`; `off` for no access log. Default: text.
    format: Option<Spanned<Choice<FormatOrOff>>>,
    /// Which requests have a line: `all`, or `denied` for those that this proxy denies, and those
    /// that a limit in shadow mode would deny. Default: all.
    only: Option<Spanned<Choice<Only>>>,
    /// Of how many denied requests one has a line, 1/1 to 1/1000000, for each worker: the line says
    /// for how many it stands. Default: each has one.
    #[schemars(regex(pattern = "^1/[1-9][0-9]*$"), extend("examples" = ["1/10"]))]
    denials: Option<Spanned<String>>,
    /// Whether a line says what limits count by (`facts`): claims, headers and cookies that a `per`
    /// of the policy names, the tier, and the cost that the response tells. Default: false.
    #[serde(default)]
    facts: bool,
}

const MOST_DENIALS: u32 = 1_000_000;

/// How events are logged.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "log section")]
pub(super) struct RawLog {
    /// How a line looks: `text` or `json`. Default: text.
    format: Option<Spanned<Choice<Format>>>,
}

/// The format of the access log's lines, or that there is no log.
#[derive(Clone, Copy, Debug, Default)]
enum FormatOrOff {
    #[default]
    Text,
    Json,
    Off,
}

keywords! { FormatOrOff { Text = "text", Json = "json", Off = "off" } }

impl Checker<'_> {
    /// The access log, if there is to be one; none beside that if the section has a mistake.
    pub(super) fn access_log(&mut self, raw: &RawAccessLog) -> Option<Option<AccessLogSettings>> {
        let format = self.keyword_or_default(raw.format.as_ref());
        let only = self.keyword_or_default(raw.only.as_ref());
        let denials = raw.denials.as_ref().and_then(|raw| self.denials(raw));
        let format = match format? {
            FormatOrOff::Text => Some(Format::Text),
            FormatOrOff::Json => Some(Format::Json),
            FormatOrOff::Off => None,
        };
        let only = only?;
        let denials = denials.filter(|of| of.get() > 1);
        Some(format.map(|format| AccessLogSettings { format, only, denials, facts: raw.facts }))
    }

    fn denials(&mut self, raw: &Spanned<String>) -> Option<NonZeroU32> {
        let of = raw.value.strip_prefix("1/").and_then(|of| of.parse::<NonZeroU32>().ok());
        let of = of.filter(|of| of.get() <= MOST_DENIALS);
        if of.is_none() {
            let message = format!("`{}` is not a share of denials", raw.value);
            self.note(raw, message, "write 1/ and a number up to 1000000: 1/10");
        }
        of
    }

    /// How events look.
    pub(super) fn events(&mut self, raw: &RawLog) -> Option<Format> {
        self.keyword_or_default(raw.format.as_ref())
    }
}

/// The format of log events from a settings file, which may have other mistakes: events are written
/// before the whole file is read.
pub fn events_format(file: &Path, sources: &Sources) -> Format {
    let text = read_text(file, sources).ok();
    let document = text.and_then(|text| Document::parse_with("", &text, sources).ok());
    let named = document.as_ref().and_then(|document| {
        let section = entry(&document.root().value, "log")?;
        let Value::String(name) = &entry(&section.value, "format")?.value else { return None };
        Format::from_keyword(name)
    });
    named.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use tempfile::TempDir;

    use super::*;
    use crate::tests::with_section;

    #[test]
    fn access_log_may_be_of_denials_only() {
        for (fields, expected) in [
            ("", Some((Format::Text, Only::All))),
            ("format: json", Some((Format::Json, Only::All))),
            ("format: json, only: denied", Some((Format::Json, Only::Denied))),
            ("only: all", Some((Format::Text, Only::All))),
            ("format: \"off\", only: denied", None),
        ] {
            let settings = with_section("access_log", fields).unwrap();
            let log = settings.access_log.map(|log| (log.format, log.only));
            assert_eq!(log, expected, "{fields}");
        }
    }

    #[test]
    fn mistakes_name_what_to_write() {
        for (section, fields, expected) in [
            ("access_log", "only: denials", "one of: all, denied"),
            (
                "access_log",
                "denials: 1/0",
                "`1/0` is not a share of denials: write 1/ and a number up to 1000000: 1/10",
            ),
            ("access_log", "denials: 2/10", "`2/10` is not a share of denials"),
            ("access_log", "denials: 1/1000001", "`1/1000001` is not a share of denials"),
            ("access_log", "denials: 0.1", "expected text, found a number"),
            ("log", "format: jsn", "did you mean `json`?"),
            ("log", "form: json", "did you mean `format`?"),
        ] {
            let problems = with_section(section, fields).unwrap_err();
            assert!(problems[0].contains(expected), "{fields}: {problems:?}");
        }
    }

    #[test]
    fn format_of_events_is_known_whatever_else_is_wrong() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("tollgate.yaml");
        for (text, expected) in [
            ("log: { format: json }\nversion: 2\n", Format::Json),
            ("version: 1\nlog: { format: text }\n", Format::Text),
            ("log: { format: \"${FORMAT}\" }\n", Format::Json),
            ("log: { format: jsn }\n", Format::Text),
            ("log: json\n", Format::Text),
            ("log: [", Format::Text),
            ("", Format::Text),
        ] {
            fs::write(&file, text).unwrap();
            let sources = Sources::system().with_variable("FORMAT", "json");
            assert_eq!(events_format(&file, &sources), expected, "{text}");
        }
        assert_eq!(events_format(&folder.path().join("none"), &Sources::system()), Format::Text);
    }

    #[test]
    fn every_setting_is_documented_and_the_other_way_round() {
        let schema = serde_json::to_value(crate::schema()).unwrap();
        let fields = |section: &str| {
            let properties = &schema["$defs"][format!("{section}_section")]["properties"];
            let names = properties.as_object().unwrap().keys();
            names.map(|name| format!("{section}.{name}")).collect::<Vec<_>>()
        };
        let settings = BTreeSet::from_iter([fields("access_log"), fields("log")].concat());
        let page = include_str!("../../../docs/log.md");
        let (_, section) = page.split_once("\n## Settings\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented = rows.map(|row| row.split('`').next().unwrap().to_owned()).collect();
        assert_eq!(settings, documented);
    }
}
