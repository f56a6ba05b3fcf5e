//! Why a program resets counters.

/// The longest reason.
const MAX_CHARS: usize = 500;

/// Why counters are reset, in one line for the log. It may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::decisions) struct Reason(String);

/// A text is no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reason has to be one line of at most {MAX_CHARS} characters")]
pub(in crate::decisions) struct NoReason;

impl Reason {
    /// Reads one.
    ///
    /// # Errors
    /// It is too long, or has control characters.
    pub(in crate::decisions) fn parse(text: &str) -> Result<Reason, NoReason> {
        let text = text.trim();
        match text.chars().count() <= MAX_CHARS && !text.chars().any(char::is_control) {
            true => Ok(Reason(text.to_owned())),
            false => Err(NoReason),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_line() {
        assert_eq!(Reason::parse("  ticket 7 "), Ok(Reason("ticket 7".into())));
        assert_eq!(Reason::parse(""), Ok(Reason::default()));
        for text in ["a\nb", "\u{7}", &"x".repeat(501)] {
            assert_eq!(Reason::parse(text), Err(NoReason), "{text:?}");
        }
    }
}
