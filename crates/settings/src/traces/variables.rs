//! The variables that OpenTelemetry defines, as far as they mean something here.
//!
//! Their specification has programs ignore a value that they cannot read, with a warning. Here it
//! is a problem like any other of the settings, as long as there are traces at all: a proxy that
//! records nothing, or everything, because of a typing error would be noticed late.

use std::{ops::RangeInclusive, time::Duration};

use http::{HeaderName, HeaderValue, Uri};
use tollgate_observe::trace::ParentFlag;
use tollgate_wire::target::percent_decoded;
use tollgate_yaml::Sources;

use super::{SERVICE_NAME, endpoint_below, http_url};

/// The variables, and what is wrong with those that were asked for: name, message, help.
pub(super) struct Variables<'s> {
    sources: &'s Sources,
    pub(super) problems: Vec<(&'static str, &'static str, &'static str)>,
}

impl<'s> Variables<'s> {
    pub(super) fn new(sources: &'s Sources) -> Self {
        Variables { sources, problems: Vec::new() }
    }

    fn get(&self, name: &str) -> Option<String> {
        let value = self.sources.variable(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    fn refuse(&mut self, name: &'static str, message: &'static str, help: &'static str) {
        self.problems.push((name, message, help));
    }

    /// Whether there are to be no traces, whatever else is set.
    pub(super) fn are_off(&self) -> bool {
        let is = |name, word| {
            self.get(name).is_some_and(|value: String| value.eq_ignore_ascii_case(word))
        };
        is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none")
    }

    /// Where spans are posted to. None: no variable says that, or it is a problem.
    pub(super) fn endpoint(&mut self) -> Option<Uri> {
        const WHOLE: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let (name, endpoint) = match (self.get(WHOLE), self.get(BASE)) {
            (Some(whole), _) => (WHOLE, http_url(&whole)),
            (None, Some(base)) => (BASE, endpoint_below(&base)),
            (None, None) => return None,
        };
        if endpoint.is_none() {
            self.refuse(name, "not the URL of an OTLP receiver", super::OTLP_HELP);
        }
        self.check_protocol();
        endpoint
    }

    fn check_protocol(&mut self) {
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            match self.get(name).as_deref() {
                None => {}
                Some("http/protobuf") => return,
                Some(_) => {
                    const HELP: &str = "set it to http/protobuf, and the endpoint to the receiver's \
                                        port for HTTP (4318), or set OTEL_SDK_DISABLED=true";
                    return self.refuse(name, "not a protocol that is spoken here", HELP);
                }
            }
        }
    }

    /// The share of traces and what the flag of a parent means. None: the variables do not say.
    pub(super) fn sampler(&mut self) -> Option<(f64, ParentFlag)> {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let name = self.get(NAME)?;
        let (sampler, parent) = match name.strip_prefix("parentbased_") {
            Some(root) => (root, ParentFlag::Decides),
            None => (name.as_str(), ParentFlag::Ignored),
        };
        let share = match sampler {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let argument = self.get(ARGUMENT).map_or(Some(1.0), |text| text.parse().ok());
                let share = argument.filter(|share| (0.0..=1.0).contains(share));
                share.unwrap_or_else(|| {
                    self.refuse(
                        ARGUMENT,
                        "not a share of traces",
                        "set it to a number from 0 to 1",
                    );
                    0.0
                })
            }
            _ => {
                const HELP: &str = "set it to traceidratio, always_on, always_off, or parentbased_ and one of them";
                self.refuse(NAME, "not a sampler", HELP);
                0.0
            }
        };
        Some((share, parent))
    }

    /// Fields of requests to the endpoint.
    pub(super) fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        const NAMES: [&str; 2] =
            ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        let Some((name, list)) = self.first(&NAMES) else { return Vec::new() };
        let header = |(name, value): (String, String)| {
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        };
        let headers = pairs(&list).and_then(|pairs| pairs.into_iter().map(header).collect());
        headers.unwrap_or_else(|| {
            self.refuse(name, "not a list of header fields", "set it to name=value,name=value");
            Vec::new()
        })
    }

    /// Attributes of the resource.
    pub(super) fn resource(&mut self) -> Vec<(String, String)> {
        const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let list = self.get(NAME).map_or(Some(Vec::new()), |list| pairs(&list));
        let mut resource = list.unwrap_or_else(|| {
            self.refuse(NAME, "not a list of attributes", "set it to name=value,name=value");
            Vec::new()
        });
        if let Some(name) = self.get("OTEL_SERVICE_NAME") {
            resource.retain(|(other, _)| other != SERVICE_NAME);
            resource.push((SERVICE_NAME.to_owned(), name));
        }
        resource
    }

    /// How long a request to the endpoint may take.
    pub(super) fn timeout(
        &mut self,
        range: &RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        const NAMES: [&str; 3] = [
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            "OTEL_BSP_EXPORT_TIMEOUT",
        ];
        match self.first(&NAMES) {
            Some((name, _)) => self.milliseconds(name, range, default),
            None => default,
        }
    }

    /// A time in milliseconds.
    pub(super) fn milliseconds(
        &mut self,
        name: &'static str,
        range: &RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        let Some(text) = self.get(name) else { return default };
        let time = text.parse().ok().map(Duration::from_millis);
        time.filter(|time| range.contains(time)).unwrap_or_else(|| {
            self.refuse(name, "not such a time", "set it to a number of milliseconds, up to 60000");
            default
        })
    }

    /// A number.
    pub(super) fn number(
        &mut self,
        name: &'static str,
        range: &RangeInclusive<u32>,
        default: u32,
    ) -> u32 {
        let Some(text) = self.get(name) else { return default };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.unwrap_or_else(|| {
            self.refuse(name, "not such a number", "set it to a number from 1 to 1000000");
            default
        })
    }

    /// The first of these that is set.
    fn first(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }
}

/// `name=value,name=value`, as W3C Baggage writes it: values may be percent-encoded.
fn pairs(list: &str) -> Option<Vec<(String, String)>> {
    let members = list.split(',').map(str::trim).filter(|member| !member.is_empty());
    let pair = |member: &str| {
        let (name, value) = member.split_once('=')?;
        let name = name.trim();
        (!name.is_empty()).then_some((name.to_owned(), percent_decoded(value.trim())?))
    };
    members.map(pair).collect()
}
