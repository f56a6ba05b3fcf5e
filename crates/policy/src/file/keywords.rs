//! Keywords of a policy file: those of types that other modules define, and those that stand for a
//! part of what a field compiles to.

use tollgate_keyword::keywords;

/// Where fixed windows begin; a calendar's time zone is a field of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WindowStart {
    #[default]
    FirstRequest,
    Epoch,
    Calendar,
}

keywords! {
    WindowStart { FirstRequest = "first_request", Epoch = "epoch", Calendar = "calendar" }
}

/// Whether a limit denies; for which callers is a field of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Enforce,
    Shadow,
}

keywords! { Mode { Enforce = "enforce", Shadow = "shadow" } }

/// What a full counter table means for a request. The default has no keyword.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnStoreFull {
    Open,
    Closed,
}

keywords! { OnStoreFull { Open = "open", Closed = "closed" } }

/// Which callers are given a refund.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RefundedCallers {
    Authenticated,
    All,
}

keywords! { RefundedCallers { Authenticated = "authenticated", All = "all" } }

/// How preflight requests are handled; what an answer says is in fields of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PreflightMode {
    #[default]
    Check,
    Pass,
    Answer,
}

keywords! { PreflightMode { Check = "check", Pass = "pass", Answer = "answer" } }

/// Whether a route needs a token; of which issuers is written beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AuthMode {
    Required,
    Optional,
    None,
}

keywords! { AuthMode { Required = "required", Optional = "optional", None = "none" } }
