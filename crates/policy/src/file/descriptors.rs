//! The shape of `rls`: which limits the descriptors of Envoy are charged to.

use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use tollgate_yaml::{Choice, Entries, Node, Spanned};

use super::shape::shapes;
use crate::DescriptorCharge;

/// Limits for some descriptors.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "rls entry")]
pub(crate) struct RawDescriptorRule {
    /// The domain that Envoy's filter sends.
    #[schemars(length(min = 1), extend("examples" = ["edge"]))]
    pub(crate) domain: Spanned<String>,
    /// Which descriptors: all keys, in their order, and values; or a list of entries.
    #[schemars(with = "When", extend("examples" = [{ "key": ["user", "path"] }]))]
    pub(crate) when: Node,
    /// The limits that are charged, which count per `descriptor.<key>`. An empty list: none.
    #[schemars(extend("examples" = [["core"]]))]
    pub(crate) limits: Vec<Spanned<String>>,
    /// What is charged if there is no room. `admitted`: nothing, as the request is denied;
    /// `always`: all of it, for filters with `apply_on_stream_done`, which tell what has happened.
    /// Default: admitted.
    pub(crate) charge: Option<Spanned<Choice<DescriptorCharge>>>,
}

/// Which descriptors, by their keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "when section of rls")]
pub(crate) struct RawDescriptor {
    /// The keys of their entries, in their order.
    #[schemars(length(min = 1), inner(length(min = 1)), extend("examples" = [["user", "path"]]))]
    pub(crate) key: Spanned<Vec<Spanned<String>>>,
    /// Values that some of them have, with `*` for any text. Left out: any.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "path": "/login*" }]))]
    pub(crate) value: Entries<Spanned<String>>,
}

/// Which descriptors: one of their entries.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "entry of when")]
pub(crate) struct RawDescriptorEntry {
    /// Its key.
    #[schemars(length(min = 1), extend("examples" = ["path"]))]
    pub(crate) key: Spanned<String>,
    /// Its value, with `*` for any text. Left out: any.
    #[schemars(extend("examples" = ["/v1/*/export"]))]
    pub(crate) value: Option<Spanned<String>>,
    /// Whether all its values have one counter, and not one each. Default: false.
    #[serde(default)]
    pub(crate) shared: bool,
}

shapes! {
    /// Which descriptors: by their keys, or entry by entry.
    When = "when of rls", |generator| json_schema!({
        "anyOf": [
            generator.subschema_for::<RawDescriptor>(),
            {
                "type": "array",
                "items": generator.subschema_for::<RawDescriptorEntry>(),
                "minItems": 1,
            },
        ],
    });
}
