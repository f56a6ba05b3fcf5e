//! What a listener sends to browsers about TLS: the redirect to https, and HSTS.

use std::{borrow::Cow, time::Duration};

use http::{HeaderValue, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use tollgate_keyword::keywords;
use tollgate_yaml::{Check, Choice, Node, Spanned, Value};

use crate::Checker;

/// Where the requests of a listener are sent to: the same host by https.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// None: the usual port of https, which URLs leave out.
    pub port: Option<u16>,
    /// The status of the redirect.
    pub status: StatusCode,
}

/// Where requests are sent to, in detail.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "redirect section")]
struct RawRedirect {
    /// The port of https. Default: 443.
    #[schemars(range(min = 1, max = 65535))]
    port: Option<Spanned<u16>>,
    /// The status: 301, 302, 307 or 308. Default: 308, which keeps the method.
    #[schemars(extend("enum" = REDIRECT_STATUSES))]
    status: Option<Spanned<u16>>,
}

/// Where requests are sent to, as a keyword: the usual port of https.
#[derive(Clone, Copy)]
enum RedirectTarget {
    Https,
}

keywords! { RedirectTarget { Https = "https" } }

/// How browsers are to come back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "hsts section")]
pub(super) struct RawHsts {
    /// How long browsers keep to TLS, up to 10y: 1y. 0s has them forget it.
    #[schemars(extend("examples" = ["1y"]))]
    max_age: Spanned<String>,
    /// Whether that holds for all hosts below this one too. Default: false.
    #[serde(default)]
    include_subdomains: bool,
    /// Whether browsers may come with this host on their list. Default: false.
    #[serde(default)]
    preload: bool,
}

/// How a redirect is written, for the JSON Schema.
pub(super) struct RedirectShape;

impl JsonSchema for RedirectShape {
    fn schema_name() -> Cow<'static, str> {
        "redirect".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let section = generator.subschema_for::<RawRedirect>();
        json_schema!({
            "anyOf": [
                generator.subschema_for::<Choice<RedirectTarget>>(),
                { "description": "A port and a status.", "$ref": section.get("$ref") },
            ],
        })
    }
}

const HTTPS_PORT: u16 = 443;
const REDIRECT_STATUSES: [u16; 4] = [301, 302, 307, 308];

const MAX_AGE: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// What lists of browsers ask for.
const MIN_PRELOAD_AGE: Duration = Duration::from_secs(365 * 24 * 3600);

impl Checker<'_> {
    pub(super) fn redirect(&mut self, node: &Node) -> Option<Redirect> {
        if let Value::String(text) = &node.value {
            let target = Spanned { value: text.clone().into(), span: node.span };
            let RedirectTarget::Https = self.keyword(&target)?;
            return Some(Redirect { port: None, status: StatusCode::PERMANENT_REDIRECT });
        }
        let raw: RawRedirect = self.decode(node, &[])?;
        let port = self.number_or(&raw.port, 1..=u16::MAX, HTTPS_PORT);
        let port = Some(port).filter(|port| *port != HTTPS_PORT);
        let status = match &raw.status {
            None => StatusCode::PERMANENT_REDIRECT,
            Some(status) if REDIRECT_STATUSES.contains(&status.value) => {
                StatusCode::from_u16(status.value).ok()?
            }
            Some(status) => {
                let message = format!("{} is not the status of a redirect", status.value);
                self.refuse(status, message, "write 301, 302, 307 or 308");
                return None;
            }
        };
        Some(Redirect { port, status })
    }

    pub(super) fn hsts(&mut self, raw: &Spanned<RawHsts>) -> Option<HeaderValue> {
        let RawHsts { max_age, include_subdomains, preload } = &raw.value;
        let age = self.time(max_age, Duration::ZERO..=MAX_AGE)?;
        if *preload && (!include_subdomains || age < MIN_PRELOAD_AGE) {
            let help = "write `include_subdomains: true` and at least 1y, or remove `preload`";
            self.refuse(raw, "browsers do not accept this for their preload list", help);
        }
        let subdomains = if *include_subdomains { "; includeSubDomains" } else { "" };
        let preload = if *preload { "; preload" } else { "" };
        let value = format!("max-age={}{subdomains}{preload}", age.as_secs());
        HeaderValue::try_from(value).ok()
    }
}
