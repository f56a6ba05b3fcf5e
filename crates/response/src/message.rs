//! The message of each rejection that the client reads. The log has the error itself, which may say
//! more.

use tollgate_identity::{CredentialError, IdentityError};
use tollgate_policy::UnfitMember;
use tollgate_store::StoreError;
use tollgate_upstream::UpstreamError;

use super::rejection::{Denial, Rejection};

const TOO_LARGE: &str = "The request body is too large.";

impl Rejection {
    /// The message for the client.
    pub(super) fn message(&self) -> String {
        match self {
            Rejection::Framing(_) => "The request is malformed or too large.".into(),
            Rejection::Target(error) => format!("The request's address is not valid: {error}."),
            Rejection::Connection(error) => format!("The request is not valid: {error}."),
            Rejection::Alias(error) => format!("The request is not valid: {error}."),
            Rejection::MethodOverride(error) => format!("The request is not valid: {error}."),
            Rejection::Question(error) => format!("This cannot be decided: {error}."),
            Rejection::Method => "This method is not allowed.".into(),
            Rejection::NoRoute => "Not Found".into(),
            Rejection::Misdirected(_) => {
                "The connection is for another host. Open a new one for this host.".into()
            }
            Rejection::Loop => "The request goes in a loop: it has been here before.".into(),
            Rejection::Identity(error) => identity_message(error).into(),
            Rejection::Claim(_) => "The credentials do not grant what this needs.".into(),
            Rejection::Scope(scopes) => {
                format!("The credentials do not grant what this needs: {scopes}.")
            }
            Rejection::Primary(Denial { retry_after: None, .. })
            | Rejection::Secondary(Denial { retry_after: None, .. }) => {
                "The cost of this request exceeds its limit.".into()
            }
            Rejection::Primary(Denial { who, .. }) => format!("API rate limit exceeded for {who}."),
            Rejection::Secondary(Denial { retry_after: Some(wait), at_once, .. }) => {
                // Octokit and PyGithub know the kind of the denial by its first words.
                let why = at_once
                    .map(|most| format!(": too many requests at once ({most} at most)"))
                    .unwrap_or_default();
                let wait = in_words(*wait);
                format!("You have exceeded a secondary rate limit{why}. Try again in {wait}.")
            }
            Rejection::Certificate(_) => "The client's certificate is not good any more.".into(),
            Rejection::Denied | Rejection::Address(_) => "Forbidden".into(),
            Rejection::BodyTooLarge => TOO_LARGE.into(),
            Rejection::MissingKey(limit) => {
                format!("The request lacks what limit {limit} counts by.")
            }
            Rejection::AmbiguousKey(limit) => {
                format!("The request has an ambiguous value of what limit {limit} counts by.")
            }
            Rejection::Member(UnfitMember { path, why }) => {
                format!("The request is not valid: `{path}` in its body {why}.")
            }
            Rejection::Query(refusal) => format!("The request is not valid: {refusal}."),
            Rejection::NoStreamUsage => "Streams have to tell their usage here: add \
                 \"stream_options\": {\"include_usage\": true} to the request."
                .into(),
            Rejection::Message(error) => format!("The request is not valid: {error}."),
            Rejection::Store(StoreError::NoRoom(reason)) if reason.is_clients_fault() => {
                "Too many different values of what a limit counts by. Try again later.".into()
            }
            Rejection::Store(_) => "The service is busy. Try again later.".into(),
            Rejection::Upstream(error) => upstream_message(error).into(),
            Rejection::HeadTimeout => "The request did not arrive in time.".into(),
            Rejection::Internal => "Something went wrong.".into(),
        }
    }
}

/// A time to wait, never less than `seconds`: `1 second`, `3 h 53 min`.
fn in_words(seconds: u64) -> String {
    let two = |high: u64, unit: &str, low: u64, lower: &str| match low {
        0 => format!("{high} {unit}"),
        _ => format!("{high} {unit} {low} {lower}"),
    };
    let minutes = seconds.div_ceil(60);
    let hours = seconds.div_ceil(3600);
    match seconds {
        1 => "1 second".into(),
        0..120 => format!("{seconds} seconds"),
        _ if minutes < 24 * 60 => match minutes / 60 {
            0 => format!("{minutes} min"),
            whole => two(whole, "h", minutes % 60, "min"),
        },
        _ => {
            let days = hours / 24;
            two(days, if days == 1 { "day" } else { "days" }, hours % 24, "h")
        }
    }
}

/// Why the caller is not known.
fn identity_message(error: &IdentityError) -> &'static str {
    match error {
        IdentityError::Missing => "Requires authentication",
        IdentityError::Credential(error) => match error {
            CredentialError::Several | CredentialError::Empty => {
                "The request has more than one credential, or an empty one."
            }
            CredentialError::Malformed => "The request has a malformed credential.",
        },
        IdentityError::Token(_)
        | IdentityError::TooManyBadTokens
        | IdentityError::IssuerNotAccepted
        | IdentityError::NoCaller => "Bad credentials",
        IdentityError::Unavailable => {
            "The credentials cannot be checked at the moment. Try again later."
        }
        IdentityError::TooManyLookups => {
            "Too many credentials from this address are being checked. Try again later."
        }
    }
}

/// Why there is no response of the upstream.
fn upstream_message(error: &UpstreamError) -> &'static str {
    match error {
        UpstreamError::NoAddress
        | UpstreamError::Connect(_)
        | UpstreamError::Tls { .. }
        | UpstreamError::Exchange(_)
        | UpstreamError::Unsound => "The upstream service could not be reached.",
        UpstreamError::Busy | UpstreamError::ShareUsed | UpstreamError::Exhausted(_) => {
            "The service is busy. Try again later."
        }
        UpstreamError::ConnectTimeout | UpstreamError::ResponseTimeout => {
            "The upstream service did not answer in time."
        }
        UpstreamError::RequestBody(_) => "The request body is malformed.",
        UpstreamError::RequestBodyTooLarge => TOO_LARGE,
        UpstreamError::RequestBodyTimeout => "The request body did not arrive in time.",
        UpstreamError::RequestBodyTooSlow => "The request body came too slowly.",
    }
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn wait_is_told_in_words_and_never_too_short() {
        for (seconds, expected) in [
            (1, "1 second"),
            (119, "119 seconds"),
            (120, "2 min"),
            (121, "3 min"),
            (3_541, "1 h"),
            (13_980, "3 h 53 min"),
            (86_399, "1 day"),
            (90_001, "1 day 2 h"),
            (200_000, "2 days 8 h"),
        ] {
            assert_eq!(in_words(seconds), expected, "{seconds}");
        }
    }
}
