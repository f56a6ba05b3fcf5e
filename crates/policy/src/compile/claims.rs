//! Claims, by the names that policies give them, and the tiers that are found there.

use tollgate_identity::{CallerKey, TierSource, TierTable, Tiers};
use tollgate_yaml::{Check, Node, Span, Spanned, Value};

use super::{Compiler, words::Names};
use crate::file::{LATER, RawTierTable};

impl Compiler<'_> {
    /// The name of a claim, or the path to one in an object, such as `realm_access.roles`. A name
    /// with dots of its own, such as a URL, is written as it is.
    pub(super) fn claim_path(&mut self, path: &str, place: Span) -> Option<Box<str>> {
        let bare = path.trim_matches(['"', '\'']);
        let inner = path.strip_suffix(']').and_then(|path| path.rsplit_once('['));
        let (message, help) = match inner {
            _ if bare != path => (
                "the name of a claim has no quotes in it",
                format!("write the name without them: {bare}"),
            ),
            Some((list, _)) => (
                "a claim that is a list has no single entries",
                format!("name the whole list: {list}"),
            ),
            None if path.trim() != path => {
                ("a space beside the name of a claim", format!("write {}", path.trim()))
            }
            None if path.starts_with('.') || path.ends_with('.') || path.is_empty() => {
                ("a part of the claim's name is empty", "write it as in jwt.app.plan".to_owned())
            }
            None => return Some(path.into()),
        };
        self.note(place, message, help);
        None
    }

    /// The same where no `jwt.` stands before it.
    pub(super) fn bare_claim_path(&mut self, raw: &Spanned<String>) -> Option<Box<str>> {
        if let Some(rest) = raw.value.strip_prefix("jwt.") {
            let message = format!("`{}` is the claim {rest} of a claim jwt", raw.value);
            self.refuse(raw.span, message, format!("write {rest}"));
            return None;
        }
        self.claim_path(&raw.value, raw.span)
    }

    /// Where the tier of callers that `key` identifies comes from.
    pub(super) fn tier_source(
        &mut self,
        node: &Node,
        key: &CallerKey,
        tiers: &Tiers,
    ) -> Option<TierSource> {
        let names = self.tier_names(tiers);
        if matches!(node.value, Value::Mapping(_)) {
            return self.tier_table(node, key, &names, tiers.default);
        }
        if matches!(node.value, Value::Sequence(_)) {
            let help = "write one, or a table: `{ from: jwt.roles, map: { admin: internal } }`";
            self.refuse(node.span, "a caller has one tier", help);
            return None;
        }
        let text = Spanned { value: self.text(node)?.to_owned(), span: node.span };
        match text.value.split_once('.') {
            Some(("jwt" | "api_key", _)) => self.tier_claim(&text, key).map(TierSource::Claim),
            _ => Some(TierSource::Fixed(self.resolve(&text, &names)?)),
        }
    }

    fn tier_table(
        &mut self,
        node: &Node,
        key: &CallerKey,
        names: &Names<'_>,
        usual: usize,
    ) -> Option<TierSource> {
        let raw: RawTierTable = self.decode(node, LATER)?;
        let claim = self.tier_claim(&raw.from, key);
        let default = match &raw.default {
            None => Some(usual),
            Some(default) => self.resolve(default, names),
        };
        if raw.map.is_empty() {
            self.refuse(
                node.span,
                "a table of no tiers",
                "add entries, as in `map: { admin: internal }`",
            );
        }
        let mut entries = Some(Vec::new());
        for (value, tier) in raw.map.iter() {
            let entry = self.resolve(tier, names).map(|tier| (value.value.as_str().into(), tier));
            if value.value.is_empty() {
                self.refuse(value.span, "an entry without a value", "write what the claim says");
            }
            entries = entries.zip(entry).map(|(mut entries, entry)| {
                entries.push(entry);
                entries
            });
        }
        Some(TierSource::Table(TierTable { claim: claim?, entries: entries?, default: default? }))
    }

    /// A claim of a token, or a field of an API key, if callers are identified by one.
    fn tier_claim(&mut self, raw: &Spanned<String>, key: &CallerKey) -> Option<Box<str>> {
        let place = raw.span;
        match raw.value.split_once('.') {
            Some((whose, claim)) if whose == key.kind() => {
                return self.claim_path(claim, place);
            }
            _ if matches!(key, CallerKey::Address { .. } | CallerKey::Certificate(_)) => {
                let message = "a caller without a token has no claims";
                self.refuse(place, message, "write the name of a tier");
            }
            Some(("jwt" | "api_key", _)) => {
                let message = "the tier comes from where the key comes from";
                let help = format!("write {}.<name>, or the name of a tier", key.kind());
                self.refuse(place, message, help);
            }
            _ => {
                let message = format!("`{}` is not a claim", raw.value);
                self.note(place, message, format!("write {}.<name>", key.kind()));
            }
        }
        None
    }
}
