//! The dashboard's page: four files in the binary, the same for everybody. They hold no data, so
//! they need no token; what they show is asked for with one.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

/// One of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Page,
    Style,
    Script,
    Icon,
}

/// A page that loads only what comes from here, runs no code that stands in it, and is not shown in
/// a frame of others.
const CONTENT_POLICY: &str = "default-src 'self'; frame-ancestors 'none'";

static REFERRER_POLICY: HeaderName = HeaderName::from_static("referrer-policy");

impl File {
    /// Its type.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            File::Page => "text/html; charset=utf-8",
            File::Style => "text/css; charset=utf-8",
            File::Script => "text/javascript; charset=utf-8",
            File::Icon => "image/svg+xml",
        }
    }

    fn text(self) -> &'static str {
        match self {
            File::Page => include_str!("dashboard/index.html"),
            File::Style => include_str!("dashboard/dashboard.css"),
            File::Script => include_str!("dashboard/dashboard.js"),
            File::Icon => tollgate_observe::ICON,
        }
    }

    /// The answer to who asks for it.
    pub(super) fn answer(self) -> Response<Full<Bytes>> {
        let mut response = super::response(StatusCode::OK, self.content_type(), "".into());
        *response.body_mut() = Full::from(self.text());
        let headers = response.headers_mut();
        let policy = HeaderValue::from_static(CONTENT_POLICY);
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        headers.insert(&REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [File; 4] = [File::Page, File::Style, File::Script, File::Icon];

    #[test]
    fn files_are_small_and_ask_nobody_else() {
        let bytes: usize = ALL.map(|file| file.text().len()).iter().sum();
        assert!(bytes < 60_000, "{bytes}");
        for file in ALL {
            // The name of a language is no address to ask.
            let text = file.text().replace("http://www.w3.org/2000/svg", "");
            for foreign in ["http:", "https:", "url(", "@import"] {
                assert!(!text.contains(foreign), "{file:?} has {foreign}");
            }
        }
    }

    /// Callers choose their names: what they send is never read as HTML or code.
    #[test]
    fn script_writes_text_only() {
        let script = File::Script.text();
        for dangerous in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
        {
            assert!(!script.contains(dangerous), "{dangerous}");
        }
        let page = File::Page.text();
        for dangerous in ["style=", "<style", "onclick", "onload", "javascript:"] {
            assert!(!page.contains(dangerous), "{dangerous}: the policy of the page forbids it");
        }
    }
}
