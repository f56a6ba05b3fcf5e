//! The names in a policy, whatever is wrong with what they name: one mistake is reported once.

use serde::{Deserialize, de::DeserializeOwned};
use tollgate_yaml::{Document, Node, Value};

use super::{
    issuers::{API_KEYS, INTROSPECTION},
    words::Names,
};

/// What is named in a policy; none: it is of a wrong type.
pub(super) struct WrittenPolicy {
    sections: WrittenSections,
    issuers: Vec<Option<String>>,
    /// How many of them vouch for claims.
    vouching: usize,
    callers: Vec<Option<String>>,
    /// Of routes.
    paths: Vec<Option<String>>,
    knows_tiers: bool,
}

/// The sections that name something. Whatever else is in them is not looked at.
#[derive(Default, Deserialize)]
struct WrittenSections {
    upstreams: Option<Node>,
    limits: Option<Node>,
    identity: Option<Node>,
    tiers: Option<Node>,
    routes: Option<Node>,
}

#[derive(Default, Deserialize)]
struct WrittenIdentity {
    jwt: Option<Node>,
    introspection: Option<Node>,
    api_keys: Option<Node>,
    callers: Option<Node>,
}

#[derive(Default, Deserialize)]
struct WrittenTiers {
    names: Option<Node>,
}

#[derive(Default, Deserialize)]
struct WrittenRoute {
    #[serde(rename = "match")]
    matcher: Option<Node>,
}

#[derive(Default, Deserialize)]
struct WrittenMatch {
    path: Option<Node>,
}

#[derive(Default, Deserialize)]
struct WrittenName {
    name: Option<Node>,
    issuer: Option<Node>,
}

/// What sections refer to each other by.
pub(super) struct WrittenNames<'n> {
    pub(super) limits: Names<'n>,
    pub(super) upstreams: Names<'n>,
    pub(super) issuers: Names<'n>,
    pub(super) callers: Names<'n>,
    /// By their paths.
    pub(super) routes: Names<'n>,
    /// How many vouch for claims.
    pub(super) vouching: usize,
    /// Whether all names of tiers are known.
    pub(super) knows_tiers: bool,
}

impl WrittenPolicy {
    pub(super) fn of(document: &Document) -> Self {
        let sections: WrittenSections = read(document, Some(document.root()));
        let identity: WrittenIdentity = read(document, sections.identity.as_ref());
        let mut issuers = each(identity.jwt.as_ref(), |node| {
            let WrittenName { name, issuer } = read(document, Some(node));
            text(name.as_ref().or(issuer.as_ref()))
        });
        let vouching = issuers.len() + usize::from(identity.introspection.is_some());
        let others = [(&identity.introspection, INTROSPECTION), (&identity.api_keys, API_KEYS)];
        for (other, usual) in others {
            let Some(other) = other else { continue };
            let WrittenName { name, .. } = read(document, Some(other));
            let name = name.map_or(Some(usual.to_owned()), |name| text(Some(&name)));
            issuers.push(name.filter(|_| is_section(Some(other))));
        }
        let callers = each(identity.callers.as_ref(), |node| {
            text(read::<WrittenName>(document, Some(node)).name.as_ref())
        });
        let paths = each(sections.routes.as_ref(), |node| {
            let WrittenRoute { matcher } = read(document, Some(node));
            text(read::<WrittenMatch>(document, matcher.as_ref()).path.as_ref())
        });
        let tiers: WrittenTiers = read(document, sections.tiers.as_ref());
        let tiers = each(tiers.names.as_ref(), |node| text(Some(node)));
        let knows_tiers = is_section(sections.tiers.as_ref()) && tiers.iter().all(Option::is_some);
        WrittenPolicy { sections, issuers, vouching, callers, paths, knows_tiers }
    }

    pub(super) fn names(&self) -> WrittenNames<'_> {
        let has_identity = is_section(self.sections.identity.as_ref());
        WrittenNames {
            limits: keys("limit", self.sections.limits.as_ref(), true),
            upstreams: keys("upstream", self.sections.upstreams.as_ref(), false),
            issuers: names("issuer", &self.issuers, has_identity),
            vouching: self.vouching,
            callers: names("caller", &self.callers, has_identity),
            routes: names("route", &self.paths, true),
            knows_tiers: self.knows_tiers,
        }
    }
}

/// What is written in the file behind these names; the last of them that is no section, as what
/// it should have had is not known.
pub(super) fn written_at<'d>(document: &'d Document, path: &[&str]) -> Option<&'d Node> {
    path.iter().try_fold(document.root(), |node, name| match &node.value {
        Value::Mapping(entries) => {
            entries.iter().find(|(key, _)| key.value == *name).map(|(_, inner)| inner)
        }
        _ => Some(node),
    })
}

/// What is written at `node`; nothing where it is something else.
fn read<T: DeserializeOwned + Default>(document: &Document, node: Option<&Node>) -> T {
    node.and_then(|node| document.decode_written(node)).unwrap_or_default()
}

fn is_section(node: Option<&Node>) -> bool {
    node.is_none_or(|node| matches!(node.value, Value::Mapping(_)))
}

fn text(node: Option<&Node>) -> Option<String> {
    match &node?.value {
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// The names of the items of a list; of a single value, which may stand for a list, as well.
fn each(list: Option<&Node>, name: impl Fn(&Node) -> Option<String>) -> Vec<Option<String>> {
    match list {
        None => Vec::new(),
        Some(Node { value: Value::Sequence(items), .. }) => items.iter().map(name).collect(),
        Some(node) => vec![name(node)],
    }
}

fn names<'n>(kind: &'static str, names: &'n [Option<String>], is_section: bool) -> Names<'n> {
    Names {
        kind,
        names: names.iter().map(|name| name.as_deref().unwrap_or_default()).collect(),
        is_complete: is_section && names.iter().all(Option::is_some),
    }
}

fn keys<'n>(kind: &'static str, section: Option<&'n Node>, may_be_none: bool) -> Names<'n> {
    let (names, is_complete) = match section.map(|section| &section.value) {
        Some(Value::Mapping(entries)) => {
            (entries.iter().map(|(name, _)| name.as_str()).collect(), true)
        }
        Some(_) => (Vec::new(), false),
        None => (Vec::new(), may_be_none),
    };
    Names { kind, names, is_complete }
}
