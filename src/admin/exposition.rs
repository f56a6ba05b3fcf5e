//! Prometheus' text format: families of metrics, one after the other.

use std::{
    borrow::Cow,
    fmt::{self, Write},
    time::Duration,
};

/// The type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the values of a metric do: they only grow, or go up and down.
#[derive(Clone, Copy)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
}

/// The text of all metrics so far.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
    /// The family that samples belong to.
    name: &'static str,
}

impl Exposition {
    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Begins a family; `help` is a sentence for people.
    pub(super) fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A number of the family.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: u64) {
        self.line(labels, format_args!("{value}"));
    }

    /// The same where it is not whole, or may be negative.
    pub(super) fn sample_real(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line(labels, format_args!("{value}"));
    }

    /// A time of the family, in seconds.
    pub(super) fn sample_time(&mut self, labels: &[(&str, &str)], time: Duration) {
        self.line(labels, format_args!("{:.3}", time.as_secs_f64()));
    }

    fn line(&mut self, labels: &[(&str, &str)], value: fmt::Arguments<'_>) {
        self.text.push_str(self.name);
        for (at, (label, word)) in labels.iter().enumerate() {
            let word = escaped(word);
            let _ = write!(self.text, "{}{label}=\"{word}\"", if at == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

/// A label's value as the format wants it: policies may have any names.
fn escaped(word: &str) -> Cow<'_, str> {
    match word.contains(['\\', '"', '\n']) {
        false => word.into(),
        true => word.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut text = Exposition::default();
        text.family("x", MetricKind::Gauge, "X.");
        text.sample(&[("a", "plain"), ("b", "\\ \" \n")], 1);
        assert!(text.text.ends_with("\nx{a=\"plain\",b=\"\\\\ \\\" \\n\"} 1\n"), "{}", text.text);
    }
}
