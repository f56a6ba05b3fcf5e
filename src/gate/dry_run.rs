//! What is different about requests that no client has sent.

use crate::identity::AssumedToken;

/// A request that no client has sent: for explanations, and for the tests in policies.
pub(crate) struct DryRun {
    /// Its token, which counts as verified. None: its headers have the credentials.
    pub(crate) token: Option<AssumedToken>,
    /// Whether charges are taken; else it is only computed what they would come to.
    pub(crate) is_charged: bool,
}
