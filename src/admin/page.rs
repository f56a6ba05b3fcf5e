//! What can be asked for: a path, and how.

use http::Method;

use super::callers::CallerPath;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Health,
    Ready,
    Status,
    Metrics,
    Reload,
    Explain,
    Caller,
    ResetCaller,
}

impl Page {
    /// What is at a path.
    pub(super) fn at(path: &str) -> Option<Page> {
        match path {
            "/healthz" => Some(Page::Health),
            "/readyz" => Some(Page::Ready),
            "/status" => Some(Page::Status),
            "/metrics" => Some(Page::Metrics),
            "/reload" => Some(Page::Reload),
            "/explain" => Some(Page::Explain),
            _ => Some(match CallerPath::of(path)? {
                CallerPath::Look(_) => Page::Caller,
                CallerPath::Reset(_) => Page::ResetCaller,
            }),
        }
    }

    /// How it is asked for, as an `Allow` field.
    pub(super) fn allow(self) -> &'static str {
        match self {
            Page::Health | Page::Ready | Page::Status | Page::Metrics | Page::Caller => "GET, HEAD",
            Page::Reload | Page::Explain | Page::ResetCaller => "POST",
        }
    }

    pub(super) fn allows(self, method: &Method) -> bool {
        self.allow().split(", ").any(|allowed| allowed == method.as_str())
    }
}
