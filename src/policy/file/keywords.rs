//! Keywords of a policy file: those of types that other modules define, and those that stand for a
//! part of what a field compiles to.

use crate::{
    identity::{InvalidToken, KeyHints, OtherSchemes},
    limit::{AlgorithmKind, Fallback},
    wire::target::EncodedSlash,
    yaml::{Keyword, keywords},
};

keywords! { EncodedSlash { Reject = "reject", Keep = "keep", Decode = "decode" } }
keywords! { Fallback { Local = "local", Open = "open", Closed = "closed" } }
keywords! { InvalidToken { Reject = "reject", Anonymous = "anonymous" } }
keywords! { KeyHints { Reject = "reject", Ignore = "ignore" } }
keywords! { OtherSchemes { Drop = "drop", Forward = "forward" } }

impl Keyword for AlgorithmKind {
    const KEYWORDS: &'static [(&'static str, AlgorithmKind)] = &AlgorithmKind::BY_NAME;

    fn keyword(self) -> &'static str {
        self.name()
    }
}

/// Where fixed windows begin; a calendar's time zone is a field of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) enum WindowStart {
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
pub(in crate::policy) enum Mode {
    #[default]
    Enforce,
    Shadow,
}

keywords! { Mode { Enforce = "enforce", Shadow = "shadow" } }

/// What a full counter table means for a request. The default has no keyword.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) enum OnStoreFull {
    Open,
    Closed,
}

keywords! { OnStoreFull { Open = "open", Closed = "closed" } }

/// Which callers are given a refund.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) enum RefundedCallers {
    Authenticated,
    All,
}

keywords! { RefundedCallers { Authenticated = "authenticated", All = "all" } }

/// How preflight requests are handled; what an answer says is in fields of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) enum PreflightMode {
    #[default]
    Check,
    Pass,
    Answer,
}

keywords! { PreflightMode { Check = "check", Pass = "pass", Answer = "answer" } }

/// Whether a route needs a token; of which issuers is written beside it.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) enum AuthMode {
    Required,
    Optional,
    None,
}

keywords! { AuthMode { Required = "required", Optional = "optional", None = "none" } }
