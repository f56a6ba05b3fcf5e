//! Responses: limit headers, the status of denials, the status endpoint.

use std::{borrow::Cow, time::Duration};

use http::StatusCode;
use tollgate_identity::{Scheme, TokenSources};
use tollgate_wire::target::{EncodedSlash, normalize_path, plain_form};
use tollgate_yaml::{Check, Spanned};

use super::Compiler;
use crate::{Responses, file::RawResponses};

/// The default path of the status endpoint.
const RATE_LIMIT_PATH: &str = "/rate_limit";

impl Compiler<'_> {
    pub(super) fn responses(
        &mut self,
        raw: &RawResponses,
        sources: Option<&TokenSources>,
    ) -> Option<Responses> {
        let headers = self.keyword_or_default(raw.headers.as_ref());
        let denied_status = match &raw.denied_status {
            None => Some(StatusCode::TOO_MANY_REQUESTS),
            // 503 would be the server's fault elsewhere; nginx has it for denials.
            Some(Spanned { value: status @ (400..=499 | 503), .. }) => {
                StatusCode::from_u16(*status).ok()
            }
            Some(raw) => {
                let help = "write 429, 403 as GitHub does, or the status that clients know";
                self.refuse(raw.span, "a denial is 400 to 499, or 503", help);
                None
            }
        };
        let mcp_denied_status = match &raw.mcp_denied_status {
            None => None,
            Some(Spanned { value: status @ (200 | 429), .. }) => StatusCode::from_u16(*status).ok(),
            Some(raw) => {
                let help = "write 200, which old clients survive, or leave it out";
                self.refuse(raw.span, "a denial of a message is 200 or 429", help);
                None
            }
        };
        for text in [&raw.documentation_url, &raw.realm].into_iter().flatten() {
            let is_plain = text.value.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
            if !is_plain || text.value.is_empty() || text.value.contains(['"', '\\']) {
                self.refuse(
                    text.span,
                    "not plain text",
                    "use printable ASCII without quotes and backslashes",
                );
            }
        }
        let rate_limit_path = self.rate_limit_path(raw.rate_limit_path.as_ref());
        let jitters = Duration::ZERO..=Duration::from_secs(60);
        let jitter = self.time_or(&raw.jitter, jitters, Duration::ZERO);
        let text =
            |raw: &Option<Spanned<String>>| raw.as_ref().map(|raw| Cow::Owned(raw.value.clone()));
        Some(Responses {
            headers: headers?,
            denied_status: denied_status?,
            mcp_denied_status,
            documentation_url: text(&raw.documentation_url),
            realm: text(&raw.realm).unwrap_or(Responses::DEFAULT.realm),
            schemes: challenged(sources),
            rate_limit_path: rate_limit_path?,
            jitter,
            shadow_header: raw.shadow_header,
        })
    }

    /// None in it: there is no such path.
    fn rate_limit_path(
        &mut self,
        raw: Option<&Spanned<String>>,
    ) -> Option<Option<Cow<'static, str>>> {
        let Some(raw) = raw else { return Some(Some(RATE_LIMIT_PATH.into())) };
        if raw.value == "off" {
            return Some(None);
        }
        let normal = normalize_path(&raw.value, EncodedSlash::Reject);
        let message = match normal.as_deref().map(plain_form) {
            Ok(normal) if normal == raw.value && !normal.contains(['?', '#']) => {
                return Some(Some(Cow::Owned(raw.value.clone())));
            }
            Ok(normal) if raw.value.starts_with('/') && !raw.value.contains(['?', '#']) => {
                format!("a request's path never looks like this: it is matched as `{normal}`")
            }
            _ => format!("`{}` is not a path", raw.value),
        };
        self.refuse(raw.span, message, "write a path such as /rate_limit, or off");
        None
    }
}

/// The schemes that challenges name. A 401 names one, also where tokens only come in other places
/// (RFC 9110 section 15.5.2).
fn challenged(sources: Option<&TokenSources>) -> Cow<'static, [Scheme]> {
    let schemes: Vec<Scheme> = sources.iter().flat_map(|own| own.all_schemes()).collect();
    match schemes.is_empty() {
        true => Responses::DEFAULT.schemes,
        false => Cow::Owned(schemes),
    }
}
