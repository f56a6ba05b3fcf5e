//! The shape of `rls`: which limits the descriptors of Envoy are charged to.

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_yaml::{Choice, Entries, Spanned};

use crate::DescriptorCharge;

/// Limits for some descriptors.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "rls entry")]
pub(crate) struct RawDescriptorRule {
    /// The domain that Envoy's filter sends.
    #[schemars(length(min = 1), extend("examples" = ["edge"]))]
    pub(crate) domain: Spanned<String>,
    /// Which descriptors: all keys, in their order.
    #[schemars(extend("examples" = [{ "key": ["user", "path"] }]))]
    pub(crate) when: RawDescriptor,
    /// The limits that are charged, which count per `descriptor.<key>`. An empty list: none.
    #[schemars(extend("examples" = [["core"]]))]
    pub(crate) limits: Vec<Spanned<String>>,
    /// What is charged if there is no room. `admitted`: nothing, as the request is denied;
    /// `always`: all of it, for filters with `apply_on_stream_done`, which tell what has happened.
    /// Default: admitted.
    pub(crate) charge: Option<Spanned<Choice<DescriptorCharge>>>,
}

/// Which descriptors.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "when section of rls")]
pub(crate) struct RawDescriptor {
    /// The keys of their entries, in their order.
    #[schemars(length(min = 1), inner(length(min = 1)), extend("examples" = [["user", "path"]]))]
    pub(crate) key: Spanned<Vec<Spanned<String>>>,
    /// Values that some of them have; one with `*` at its end is for all that begin so. Left out:
    /// any.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "path": "/login*" }]))]
    pub(crate) value: Entries<Spanned<String>>,
}
