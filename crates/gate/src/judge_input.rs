//! What a request is judged by, besides its policy and route.

use std::cell::OnceCell;

use tollgate_clock::Timestamp;
use tollgate_identity::{Client, PublishedKeys};

use super::{
    body_look::{BodyFacts, BodyInput},
    dry_run::DryRun,
    head::Head,
};

/// What a request is judged by.
pub struct JudgeInput<'r> {
    /// The head of the request.
    pub head: &'r Head<'r>,
    /// What is known of the client before its token is read.
    pub client: Client<'r>,
    /// The keys of issuers, as of this snapshot.
    pub published_keys: &'r PublishedKeys,
    /// The one instant at which it is judged.
    pub now: Timestamp,
    /// Whether another proxy asks about it, and forwards it itself.
    pub is_asked: bool,
    /// None: a client has really sent the request.
    pub dry_run: Option<&'r DryRun>,
    /// Where its body is.
    pub body: BodyInput<'r>,
    /// What its body says, once that was looked at.
    pub facts: &'r OnceCell<BodyFacts>,
}
