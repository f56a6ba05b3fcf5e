//! What is different about requests that no client has sent.

use crate::identity::AssumedToken;

/// A request that no client has sent: for explanations, and for the tests in policies.
pub(super) struct DryRun {
    /// Its token, which counts as verified. None: its headers have the credentials.
    pub(super) token: Option<AssumedToken>,
    /// Whether charges are taken; else it is only computed what they would come to.
    pub(super) is_charged: bool,
}
