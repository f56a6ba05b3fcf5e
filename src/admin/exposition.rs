//! Prometheus' text format 0.0.4 and OpenMetrics 1.0: families of metrics, one after the other.

use std::{
    borrow::Cow,
    fmt::{self, Write},
    time::Duration,
};

use http::HeaderMap;
use tollgate_observe::metrics::HistogramTotal;
use tollgate_wire::accept::accepted;

/// The format of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TextFormat {
    /// Prometheus' own.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// What the values of a metric do: they only grow, or go up and down.
#[derive(Clone, Copy)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// The text of all metrics so far.
#[derive(Default)]
pub(super) struct Exposition {
    format: TextFormat,
    text: String,
    /// The family that samples belong to.
    name: &'static str,
    /// Samples so far.
    series: usize,
}

impl TextFormat {
    /// The format that a request wants: OpenMetrics if `Accept` names it and does not prefer plain
    /// text.
    pub(super) fn wanted(headers: &HeaderMap) -> TextFormat {
        let (mut open_metrics, mut plain) = (0, 0);
        for (range, quality) in accepted(headers) {
            if range.eq_ignore_ascii_case(b"application/openmetrics-text") {
                open_metrics = quality.max(open_metrics);
            } else if range.eq_ignore_ascii_case(b"text/plain") {
                plain = quality.max(plain);
            }
        }
        match open_metrics > 0 && open_metrics >= plain {
            true => TextFormat::OpenMetrics,
            false => TextFormat::Prometheus,
        }
    }

    /// The text's type.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            TextFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Exposition {
    /// No metrics yet.
    pub(super) fn new(format: TextFormat) -> Exposition {
        Exposition { format, ..Exposition::default() }
    }

    /// How many samples there are so far.
    pub(super) fn series(&self) -> usize {
        self.series
    }

    /// The whole text.
    pub(super) fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// Begins a family; `help` is a sentence for people.
    pub(super) fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        // OpenMetrics calls a counter's family by its name without `_total`.
        let family = match (self.format, kind) {
            (TextFormat::OpenMetrics, MetricKind::Counter) => {
                name.strip_suffix("_total").unwrap_or(name)
            }
            _ => name,
        };
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.name = name;
        let _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}");
    }

    /// A number of the family.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: u64) {
        self.line("", labels, format_args!("{value}"));
    }

    /// A family of one number that only grows.
    pub(super) fn counter(&mut self, name: &'static str, help: &str, number: u64) {
        self.family(name, MetricKind::Counter, help);
        self.sample(&[], number);
    }

    /// A family of numbers that only grow, by the values of one label.
    pub(super) fn counters<'a>(
        &mut self,
        name: &'static str,
        help: &str,
        label: &str,
        numbers: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.family(name, MetricKind::Counter, help);
        for (value, number) in numbers {
            self.sample(&[(label, value)], number);
        }
    }

    /// A family of one number that goes up and down.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str, number: u64) {
        self.family(name, MetricKind::Gauge, help);
        self.sample(&[], number);
    }

    /// A family of one number: 1 if it is so, and else 0.
    pub(super) fn flag(&mut self, name: &'static str, help: &str, is_so: bool) {
        self.gauge(name, help, is_so.into());
    }

    /// The same where it is not whole, or may be negative.
    pub(super) fn sample_real(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line("", labels, format_args!("{value}"));
    }

    /// A time of the family, in seconds.
    pub(super) fn sample_time(&mut self, labels: &[(&str, &str)], time: Duration) {
        self.line("", labels, format_args!("{:.3}", time.as_secs_f64()));
    }

    /// A histogram of the family.
    pub(super) fn histogram(&mut self, labels: &[(&str, &str)], total: &HistogramTotal) {
        let HistogramTotal { cumulative, count, sum } = total;
        let bounds = cumulative.iter().map(|(bound, below)| (self.bound(*bound), *below));
        let bounds: Vec<_> = bounds.chain([("+Inf".to_owned(), *count)]).collect();
        for (bound, below) in bounds {
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.line("_bucket", &labels, format_args!("{below}"));
        }
        self.line("_sum", labels, format_args!("{sum}"));
        self.line("_count", labels, format_args!("{count}"));
    }

    /// A bound as a label: OpenMetrics wants `1.0`, where Prometheus writes `1`.
    fn bound(&self, bound: f64) -> String {
        match self.format {
            TextFormat::OpenMetrics => format!("{bound:?}"),
            TextFormat::Prometheus => bound.to_string(),
        }
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: fmt::Arguments<'_>) {
        self.series += 1;
        self.text.push_str(self.name);
        self.text.push_str(suffix);
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
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut text = Exposition::default();
        text.family("x", MetricKind::Gauge, "X.");
        text.sample(&[("a", "plain"), ("b", "\\ \" \n")], 1);
        assert!(text.text.ends_with("\nx{a=\"plain\",b=\"\\\\ \\\" \\n\"} 1\n"), "{}", text.text);
    }

    #[test]
    fn both_formats_write_counters_and_histograms_in_their_own_way() {
        let total = HistogramTotal { cumulative: vec![(0.5, 1), (1.0, 1)], count: 2, sum: 3.25 };
        let written = |format| {
            let mut text = Exposition::new(format);
            text.family("a_total", MetricKind::Counter, "A.");
            text.sample(&[], 1);
            text.family("b_seconds", MetricKind::Histogram, "B.");
            text.histogram(&[("c", "d")], &total);
            assert_eq!(text.series(), 6);
            text.finish()
        };
        let buckets = "b_seconds_bucket{c=\"d\",le=\"0.5\"} 1\n";
        assert_eq!(
            written(TextFormat::Prometheus),
            format!(
                "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n# HELP b_seconds B.\n# TYPE \
                 b_seconds histogram\n{buckets}b_seconds_bucket{{c=\"d\",le=\"1\"}} 1\nb_seconds_bucket\
                 {{c=\"d\",le=\"+Inf\"}} 2\nb_seconds_sum{{c=\"d\"}} 3.25\nb_seconds_count{{c=\"d\"}} 2\n"
            )
        );
        assert_eq!(
            written(TextFormat::OpenMetrics),
            format!(
                "# HELP a A.\n# TYPE a counter\na_total 1\n# HELP b_seconds B.\n# TYPE b_seconds \
                 histogram\n{buckets}b_seconds_bucket{{c=\"d\",le=\"1.0\"}} 1\nb_seconds_bucket\
                 {{c=\"d\",le=\"+Inf\"}} 2\nb_seconds_sum{{c=\"d\"}} 3.25\nb_seconds_count{{c=\"d\"}} 2\n\
                 # EOF\n"
            )
        );
    }

    #[test]
    fn format_is_the_one_that_is_preferred() {
        let open =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        for (accept, expected) in [
            ("", TextFormat::Prometheus),
            ("*/*", TextFormat::Prometheus),
            ("text/plain", TextFormat::Prometheus),
            (open, TextFormat::OpenMetrics),
            ("application/openmetrics-text", TextFormat::OpenMetrics),
            ("application/openmetrics-text; q=0", TextFormat::Prometheus),
            ("application/openmetrics-text;q=0.2, text/plain", TextFormat::Prometheus),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(TextFormat::wanted(&headers), expected, "{accept}");
        }
    }
}
