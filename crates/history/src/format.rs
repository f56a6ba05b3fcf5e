//! The formats of logs.

use std::fmt;

use clap::ValueEnum;

/// A format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tollgate, `access_log: { format: json }`
    TollgateJson,
    /// Tollgate, `access_log: { format: text }`
    TollgateText,
    /// Apache and nginx: common
    Common,
    /// Apache, nginx, APISIX: combined
    #[value(alias = "apisix")]
    Combined,
    /// nginx, a `log_format` with `escape=json`
    NginxJson,
    /// Caddy
    Caddy,
    /// Traefik, `accessLog: { format: json }`
    Traefik,
    /// Envoy, `json_format` and the text format that is the default
    Envoy,
    /// HAProxy, `option httplog`, or JSON
    Haproxy,
    /// Cloudflare, Logpush of HTTP requests
    Cloudflare,
    /// AWS, load balancers
    Alb,
    /// AWS, CloudFront
    Cloudfront,
    /// IIS, and others that write `#Fields:`
    #[value(alias = "iis")]
    W3c,
    /// Google Cloud, load balancers
    Gcp,
    /// JSON, with fields as `--column` names them
    Json,
    /// Columns, as `--column` names them
    Csv,
}

impl fmt::Display for Format {
    /// Its name, as `--format` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

impl Format {
    /// The names of all formats, with commas between.
    pub(super) fn names() -> String {
        let names: Vec<String> = Format::value_variants().iter().map(Format::to_string).collect();
        names.join(", ")
    }
}
