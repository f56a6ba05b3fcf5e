//! Settings of traces: the section `tracing`, and the variables that OpenTelemetry defines for all
//! programs (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>).
//! A field of the section wins over its variable.

mod variables;

use std::{ops::RangeInclusive, time::Duration};

use http::{HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_observe::trace::{ParentFlag, Ratio, Sampling, TraceSettings, TrustParent};
use tollgate_yaml::{Check, Choice, Entries, Problem, Spanned};

use self::variables::Variables;
use super::Checker;

/// Where spans of requests go, and of which requests.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "tracing section")]
pub(super) struct RawTracing {
    /// Where spans are posted to in OTLP over HTTP, such as http://127.0.0.1:4318; `/v1/traces` is
    /// appended. Left out: what OTEL_EXPORTER_OTLP_ENDPOINT says, else there are no traces.
    #[schemars(length(min = 1), extend("examples" = ["http://127.0.0.1:4318"]))]
    otlp: Option<Spanned<String>>,
    /// Fields of each such request, by name.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "authorization": "Bearer ${OTLP_TOKEN}" }]))]
    headers: Entries<Spanned<String>>,
    /// How long such a request may take, 100ms to 1m. Default: 10s.
    #[schemars(extend("examples" = ["10s"]))]
    timeout: Option<Spanned<String>>,
    /// The name of the service (`service.name`). Default: tollgate.
    #[schemars(length(min = 1), extend("examples" = ["edge"]))]
    service_name: Option<Spanned<String>>,
    /// Other attributes of the resource, by name.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "deployment.environment.name": "production" }]))]
    resource: Entries<Spanned<String>>,
    /// The share of traces that is recorded, 0 to 1: which ones follows from their ids. Default:
    /// 0.01.
    #[schemars(range(min = 0, max = 1), extend("examples" = [0.01]))]
    sample: Option<Spanned<f64>>,
    /// Whether each request is recorded that a limit denies, whatever the share. Default: true.
    denials: Option<bool>,
    /// Whose `traceparent` is believed: that of `trusted` proxies, `always`, `never`. A request of
    /// anybody else begins a trace. Default: trusted.
    trust_parent: Option<Spanned<Choice<TrustParent>>>,
    /// Whether spans name the caller and the client's address. Default: false.
    #[serde(default)]
    caller: bool,
    /// Most spans that wait for being sent, 1 to 1000000; others are dropped and counted. Default:
    /// 2048.
    #[schemars(range(min = 1, max = 1_000_000))]
    queue: Option<Spanned<u32>>,
    /// How long a span waits for others that are sent with it, 10ms to 1m. Default: 5s.
    #[schemars(extend("examples" = ["5s"]))]
    every: Option<Spanned<String>>,
}

const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
const EVERY: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
const QUEUE: RangeInclusive<u32> = 1..=1_000_000;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_EVERY: Duration = Duration::from_secs(5);
const DEFAULT_QUEUE: u32 = 2048;
const DEFAULT_BATCH: u32 = 512;
const DEFAULT_SHARE: f64 = 0.01;

/// Where OTLP is posted to, below the URL that is written.
const TRACES_PATH: &str = "/v1/traces";

impl Checker<'_> {
    /// None: there are no traces, or the section has a mistake.
    pub(super) fn tracing(&mut self, raw: &RawTracing) -> Option<TraceSettings> {
        let written = raw.otlp.as_ref().map(|raw| self.otlp(raw));
        let headers = self.otlp_headers(&raw.headers);
        let timeout = raw.timeout.as_ref().map(|raw| self.time(raw, TIMEOUT));
        let every = raw.every.as_ref().map(|raw| self.time(raw, EVERY));
        let share = raw.sample.as_ref().map(|raw| self.share(raw));
        let trust_parent = raw.trust_parent.as_ref().map(|raw| self.keyword(raw));
        let queue = raw.queue.as_ref().map(|raw| self.number(raw, QUEUE));

        let mut variables = Variables::new(self.inspection.sources);
        if variables.are_off() {
            return None;
        }
        let endpoint = written.unwrap_or_else(|| variables.endpoint());
        if raw.otlp.is_none() && endpoint.is_none() && variables.problems.is_empty() {
            return None;
        }
        let (sampled, parent) = match share {
            Some(share) => (share, ParentFlag::default()),
            None => match variables.sampler() {
                Some((share, parent)) => (Ratio::new(share), parent),
                None => (Ratio::new(DEFAULT_SHARE), ParentFlag::default()),
            },
        };
        let mut all_headers = variables.headers();
        all_headers.retain(|(name, _)| !headers.iter().any(|(own, _)| own == name));
        all_headers.extend(headers);
        let resource = resource(variables.resource(), raw);
        let timeout = timeout.unwrap_or_else(|| Some(variables.timeout(&TIMEOUT, DEFAULT_TIMEOUT)));
        let every = every.unwrap_or_else(|| {
            Some(variables.milliseconds("OTEL_BSP_SCHEDULE_DELAY", &EVERY, DEFAULT_EVERY))
        });
        let queue = queue.unwrap_or_else(|| {
            Some(variables.number("OTEL_BSP_MAX_QUEUE_SIZE", &QUEUE, DEFAULT_QUEUE))
        });
        let batch =
            variables.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &QUEUE, DEFAULT_BATCH) as usize;
        for (variable, message, help) in variables.problems {
            let message = format!("{variable} is {message}");
            let problem = Problem::whole_file(self.inspection.document.name(), message, help);
            self.inspection.problems.push(problem);
        }
        let queue = queue? as usize;
        Some(TraceSettings {
            endpoint: endpoint?,
            headers: all_headers,
            timeout: timeout?,
            resource,
            sampling: Sampling { ratio: sampled?, parent },
            denials: raw.denials.unwrap_or(true),
            trust_parent: trust_parent.unwrap_or_else(|| Some(TrustParent::default()))?,
            caller: raw.caller,
            queue,
            batch: batch.min(queue),
            every: every?,
        })
    }

    fn otlp(&mut self, raw: &Spanned<String>) -> Option<Uri> {
        let endpoint = endpoint_below(&raw.value);
        if endpoint.is_none() {
            // Not quoted: it may have a password in it.
            self.note(raw, "not the URL of an OTLP receiver", OTLP_HELP);
        }
        endpoint
    }

    fn otlp_headers(&mut self, raw: &Entries<Spanned<String>>) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::new();
        for (name, value) in raw.iter() {
            let Ok(header) = HeaderName::from_bytes(name.value.as_bytes()) else {
                let message = format!("`{}` is not the name of a header field", name.value);
                self.note(name, message, "write a name such as authorization");
                continue;
            };
            match HeaderValue::from_str(&value.value) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    headers.push((header, value));
                }
                Err(_) => self.note(
                    value,
                    "not the value of a header field",
                    "write it in one line, without control characters",
                ),
            }
        }
        headers
    }

    fn share(&mut self, raw: &Spanned<f64>) -> Option<Ratio> {
        let share = Ratio::new(raw.value);
        if share.is_none() {
            self.note(raw, "not a share of traces", "write a number from 0 to 1: 0.01");
        }
        share
    }
}

const SERVICE_NAME: &str = "service.name";

const OTLP_HELP: &str = "write a scheme, a host and a port: http://127.0.0.1:4318";

/// The attributes of the resource: those of the variables, over which those of the section win.
fn resource(mut resource: Vec<(String, String)>, raw: &RawTracing) -> Vec<(String, String)> {
    let own = raw.resource.iter().map(|(name, value)| (name.value.as_str(), &value.value));
    let named = raw.service_name.iter().map(|name| (SERVICE_NAME, &name.value));
    for (name, value) in own.chain(named) {
        resource.retain(|(other, _)| other != name);
        resource.push((name.to_owned(), value.clone()));
    }
    if !resource.iter().any(|(name, _)| name == SERVICE_NAME) {
        resource.push((SERVICE_NAME.to_owned(), "tollgate".to_owned()));
    }
    resource
}

/// The URL of the endpoint for traces below this one. None: it is no URL for HTTP.
fn endpoint_below(base: &str) -> Option<Uri> {
    let base = base.trim_end_matches('/');
    match base.ends_with(TRACES_PATH) {
        true => http_url(base),
        false => http_url(&format!("{base}{TRACES_PATH}")),
    }
}

/// None: it is no URL for HTTP, has a user in it, or no host.
fn http_url(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let authority = url.authority()?.as_str();
    let is_plain = !authority.contains('@') && !url.host()?.is_empty();
    // Hyper takes a port that is no number for a missing one.
    let has_port = url.port_u16().is_some_and(|port| port > 0) || !has_port(authority);
    (is_http && is_plain && has_port && !text.contains(['?', '#'])).then_some(url)
}

/// Whether something is written where the port would be.
fn has_port(authority: &str) -> bool {
    authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
}

#[cfg(test)]
mod tests;
