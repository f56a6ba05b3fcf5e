//! What the log says of a refused token: why, what was expected and what was found. Clients never
//! get this text.
//!
//! Tokens are written by clients, so what is quoted of one is bounded and printable.

use std::fmt::{self, Display};

use tollgate_keyword::Keyword;

use super::{keys::Algorithm, token_error::TokenError};

/// A refused token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TokenRefusal {
    /// Why it is refused.
    pub error: TokenError,
    /// What was expected and found, if that helps.
    detail: Option<Box<str>>,
}

impl TokenRefusal {
    pub(super) fn new(error: TokenError, detail: impl Display) -> TokenRefusal {
        TokenRefusal { error, detail: Some(detail.to_string().into()) }
    }

    /// The fixed text for the client: that of [`TokenError::description`].
    pub const fn description(&self) -> &'static str {
        self.error.description()
    }
}

impl From<TokenError> for TokenRefusal {
    fn from(error: TokenError) -> TokenRefusal {
        TokenRefusal { error, detail: None }
    }
}

impl Display for TokenRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{}: {detail}", self.error),
            None => self.error.fmt(f),
        }
    }
}

/// A token with another algorithm than these.
pub(super) fn wrong_algorithm(allowed: &[Algorithm], found: Option<&str>) -> TokenRefusal {
    let allowed: Vec<&str> = allowed.iter().map(|own| own.keyword()).collect();
    let found = QuotedList(found.into_iter());
    let detail = format!("expected {}, found {found}", allowed.join(", "));
    TokenRefusal::new(TokenError::AlgorithmNotAllowed, detail)
}

/// A text in quotes, with escapes for all that is not printable, and cut if it is long.
pub(super) struct Quoted<'t>(pub(super) &'t str);

/// How many characters of a text are shown.
const MAX_CHARACTERS: usize = 64;

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(MAX_CHARACTERS).and_then(|(end, _)| self.0.get(..end)) {
            Some(start) => write!(f, "{start:?}..."),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// Texts in quotes, the first few of them.
pub(super) struct QuotedList<I>(pub(super) I);

/// How many texts of a list are shown.
const MAX_TEXTS: usize = 4;

impl<'t, I: Iterator<Item = &'t str> + Clone> Display for QuotedList<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts = self.0.clone();
        for (index, text) in texts.by_ref().take(MAX_TEXTS).enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, Quoted(text))?;
        }
        match (self.0.clone().count(), texts.count()) {
            (0, _) => f.write_str("none"),
            (_, 0) => Ok(()),
            (_, more) => write!(f, " and {more} more"),
        }
    }
}
