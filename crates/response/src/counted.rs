//! What a limit counts, where clients are told that.

/// What a limit counts, as the headers of OpenAI tell limits apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Requests, one each.
    Requests,
    /// Tokens.
    Tokens,
}

impl Counted {
    /// Both.
    pub const ALL: [Counted; 2] = [Counted::Requests, Counted::Tokens];
}
