use std::path::Path;

use tollgate_yaml::Sources;

use super::*;
use crate::{
    Settings,
    tests::{FILE, rendered, with_section},
};

/// What the settings say with this section and these variables.
fn with_variables(
    section: &str,
    variables: &[(&str, &str)],
) -> Result<Option<TraceSettings>, Vec<String>> {
    let text = format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\n{section}\n");
    let sources = variables
        .iter()
        .fold(Sources::system(), |sources, (name, value)| sources.with_variable(name, value));
    let settings = Settings::parse(Path::new(FILE), &text, &sources);
    settings.map(|settings| settings.tracing).map_err(|problems| rendered(&problems))
}

fn tracing(fields: &str) -> TraceSettings {
    with_section("tracing", fields).unwrap().tracing.unwrap()
}

#[test]
fn there_are_no_traces_unless_something_names_an_endpoint() {
    for section in ["", "tracing: {}", "tracing: { sample: 1, denials: false }"] {
        assert!(with_variables(section, &[]).unwrap().is_none(), "{section}");
        let other = [("OTEL_SERVICE_NAME", "edge"), ("OTEL_TRACES_SAMPLER", "always_on")];
        assert!(with_variables(section, &other).unwrap().is_none(), "{section}");
    }
}

#[test]
fn defaults_are_those_of_the_reference() {
    let own = tracing("otlp: http://127.0.0.1:4318");
    assert_eq!(own.endpoint, "http://127.0.0.1:4318/v1/traces");
    assert_eq!(own.timeout, Duration::from_secs(10));
    assert_eq!(own.every, Duration::from_secs(5));
    assert_eq!((own.queue, own.batch), (2048, 512));
    assert_eq!(own.sampling.ratio, Ratio::new(0.01).unwrap());
    assert_eq!(own.sampling.parent, ParentFlag::Adds);
    assert!(own.denials && !own.caller && own.headers.is_empty());
    assert_eq!(own.trust_parent, TrustParent::Trusted);
    assert_eq!(own.resource, [("service.name".to_owned(), "tollgate".to_owned())]);
}

#[test]
fn path_of_the_endpoint_is_appended_once() {
    for (written, endpoint) in [
        ("http://collector", "http://collector/v1/traces"),
        ("https://collector:4318/", "https://collector:4318/v1/traces"),
        ("http://[::1]:4318/otlp", "http://[::1]:4318/otlp/v1/traces"),
        ("http://collector/v1/traces", "http://collector/v1/traces"),
    ] {
        assert_eq!(tracing(&format!("otlp: \"{written}\"")).endpoint, endpoint, "{written}");
    }
}

#[test]
fn mistakes_are_reported_with_their_places() {
    const OTLP: &str = "not the URL of an OTLP receiver: write a scheme, a host and a port: \
                        http://127.0.0.1:4318";
    for (fields, expected) in [
        ("otlp: 127.0.0.1:4318", format!("3:18 {OTLP}")),
        ("otlp: grpc://127.0.0.1:4317", format!("3:18 {OTLP}")),
        ("otlp: http://user:password@a", format!("3:18 {OTLP}")),
        ("otlp: http://a:port", format!("3:18 {OTLP}")),
        ("otlp: http://a:0", format!("3:18 {OTLP}")),
        ("otlp: \"http://a/?b\"", format!("3:18 {OTLP}")),
        ("sample: 1.5", "3:20 not a share of traces: write a number from 0 to 1: 0.01".into()),
        ("sample: .nan", "3:20 not a share of traces: write a number from 0 to 1: 0.01".into()),
        ("queue: 0", "3:19 0 is out of range: write 1 to 1000000".into()),
        (
            "timeout: 1h",
            "3:21 `1h` is out of range: write a number and a unit, 100ms to 1m".into(),
        ),
        ("every: 1h", "3:19 `1h` is out of range: write a number and a unit, 10ms to 1m".into()),
        (
            "headers: { a b: c }",
            "3:23 `a b` is not the name of a header field: write a name such as authorization".into(),
        ),
        (
            "headers: { a: \"b\\nc\" }",
            "3:26 not the value of a header field: write it in one line, without control characters"
                .into(),
        ),
    ] {
        let problems = with_section("tracing", fields).unwrap_err();
        assert_eq!(problems, [expected], "{fields}");
    }
    let problems = with_section("tracing", "trust_parent: trustd").unwrap_err();
    assert!(problems[0].contains("did you mean `trusted`?"), "{problems:?}");
}

#[test]
fn variables_are_enough() {
    let own = with_variables(
        "",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x-tenant=t"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_SERVICE_NAME", "edge"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,a=b"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"),
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
        ],
    );
    let own = own.unwrap().unwrap();
    assert_eq!(own.endpoint, "http://collector:4318/v1/traces");
    let headers = own.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    assert_eq!(headers.collect::<Vec<_>>(), [("api-key", "a b"), ("x-tenant", "t")]);
    assert_eq!(own.timeout, Duration::from_millis(1500));
    assert_eq!(own.every, Duration::from_millis(200));
    assert_eq!((own.queue, own.batch), (100, 100));
    let ratio = Ratio::new(0.25).unwrap();
    assert_eq!(own.sampling, Sampling { ratio, parent: ParentFlag::Decides });
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(own.resource, [pair("a", "b"), pair("service.name", "edge")]);
}

#[test]
fn fields_win_over_variables() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://variable:4318/mine"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=variable,b=variable"),
        ("OTEL_SERVICE_NAME", "variable"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
    ];
    let section =
        "tracing: { otlp: http://field, headers: { a: field }, service_name: field, sample: 0 }";
    let own = with_variables(section, &variables).unwrap().unwrap();
    assert_eq!(own.endpoint, "http://field/v1/traces");
    let headers = own.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    assert_eq!(headers.collect::<Vec<_>>(), [("b", "variable"), ("a", "field")]);
    assert_eq!(own.resource, [("service.name".to_owned(), "field".to_owned())]);
    assert_eq!(own.sampling.ratio, Ratio::new(0.0).unwrap());
    let own = with_variables("", &variables).unwrap().unwrap();
    assert_eq!(own.endpoint, "http://variable:4318/mine");
    assert_eq!(
        own.sampling,
        Sampling { ratio: Ratio::new(1.0).unwrap(), parent: ParentFlag::Ignored }
    );
    for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
        let variables = [&variables[..], &[off]].concat();
        assert!(with_variables(section, &variables).unwrap().is_none(), "{off:?}");
    }
}

#[test]
fn variables_that_cannot_be_read_are_problems() {
    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
    for (name, value, expected) in [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector", "is not the URL of an OTLP receiver"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "is not a protocol that is spoken here"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a", "is not a list of header fields"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c", "is not a list of header fields"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "is not such a time"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=%f", "is not a list of attributes"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", "is not a sampler"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "is not such a number"),
    ] {
        let problems = with_variables("", &[ENDPOINT, (name, value)]).err().unwrap();
        let expected = format!("{name} {expected}");
        assert!(problems.len() == 1 && problems[0].contains(&expected), "{name}: {problems:?}");
    }
    let ratio =
        [ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
    let problems = with_variables("", &ratio).err().unwrap();
    assert!(
        problems[0].contains("OTEL_TRACES_SAMPLER_ARG is not a share of traces"),
        "{problems:?}"
    );
}
