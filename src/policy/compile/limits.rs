//! Limits: what they count by, and the rate of each tier.

use http::HeaderValue;

use super::{Compiler, Names};
use crate::{
    identity::Tiers,
    limit::LimitId,
    policy::{Allowance, KeyPart, Limit, Rate, file::RawLimit},
    yaml::{Node, Spanned, Value, suggest},
};

const KEY_PARTS_HELP: &str = "one of: caller, client.ip, path, method, jwt.<claim>, header.<name>";

impl Compiler<'_> {
    pub(super) fn limit(
        &mut self,
        name: &Spanned<String>,
        raw: &RawLimit,
        tiers: &Tiers,
    ) -> Option<Limit> {
        self.check_name(name, "limit");
        if let Some(algorithm) = &raw.algorithm {
            self.algorithm(algorithm);
        }
        let per = self.key_parts(&raw.per);
        let allowances = self
            .rates(&raw.rate, tiers)?
            .into_iter()
            .map(|rate| match rate {
                Rate::Unlimited => None,
                Rate::Quota(quota) => Some(Allowance {
                    quota,
                    id: LimitId::new(
                        &self.name,
                        &name.value,
                        "fixed_window",
                        quota.window.as_micros() as u64,
                    ),
                    limit: quota.limit.into(),
                }),
            })
            .collect();
        Some(Limit {
            name: name.value.as_str().into(),
            resource: HeaderValue::from_str(&name.value).ok()?,
            per: per?,
            allowances,
        })
    }

    fn algorithm(&mut self, raw: &Spanned<String>) {
        const LATER: [&str; 4] = ["sliding_window", "sliding_log", "token_bucket", "gcra"];
        if LATER.contains(&raw.value.as_str()) {
            self.refuse(
                raw.span,
                format!("`{}` is not supported yet", raw.value),
                "write fixed_window",
            );
        } else {
            self.one_of(raw, &[("fixed_window", ())]);
        }
    }

    fn key_parts(&mut self, raw: &Node) -> Option<Vec<KeyPart>> {
        let nodes = match &raw.value {
            Value::Sequence(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(raw),
        };
        if nodes.is_empty() {
            self.refuse(raw.span, "a limit is counted per something", KEY_PARTS_HELP);
            return None;
        }
        let mut parts = Vec::new();
        for node in nodes {
            let part = self.key_part(node)?;
            if parts.contains(&part) {
                self.refuse(node.span, "listed twice", "remove one");
            }
            parts.push(part);
        }
        Some(parts)
    }

    fn key_part(&mut self, node: &Node) -> Option<KeyPart> {
        let text = self.text(node)?;
        match text {
            "caller" => return Some(KeyPart::Caller),
            "client.ip" => return Some(KeyPart::ClientIp),
            "path" => return Some(KeyPart::Path),
            "method" => return Some(KeyPart::Method),
            "host" => {
                self.refuse(node.span, "`host` is not supported yet", KEY_PARTS_HELP);
                return None;
            }
            _ => {}
        }
        match text.split_once('.') {
            Some(("jwt" | "claim", claim)) if !claim.is_empty() => {
                Some(KeyPart::Claim(claim.into()))
            }
            Some(("header", name)) => {
                let name = Spanned { value: name.to_owned(), span: node.span };
                self.header_name(&name).map(KeyPart::Header)
            }
            Some((kind @ ("cookie" | "path" | "query"), _)) => {
                self.refuse(node.span, format!("`{kind}.…` is not supported yet"), KEY_PARTS_HELP);
                None
            }
            _ => {
                let known = ["caller", "client.ip", "path", "method"];
                let help = suggest(text, known)
                    .map_or(KEY_PARTS_HELP.to_owned(), |word| format!("did you mean `{word}`?"));
                self.refuse(node.span, format!("`{text}` is nothing to count by"), help);
                None
            }
        }
    }

    /// Rates of all tiers, by position.
    fn rates(&mut self, raw: &Node, tiers: &Tiers) -> Option<Vec<Rate>> {
        let Value::Mapping(entries) = &raw.value else {
            let rate = self.rate(raw)?;
            return Some(vec![rate; tiers.len()]);
        };
        let names = Names { kind: "tier", names: tiers.names().collect() };
        let mut rates: Vec<Option<Rate>> = vec![None; tiers.len()];
        let (mut default, mut complete) = (None, true);
        for (tier, node) in entries {
            let Some(rate) = self.rate(node) else {
                complete = false;
                continue;
            };
            if tier.value == "default" {
                default = Some(rate);
            } else if let Some(slot) = self.resolve(tier, &names).and_then(|at| rates.get_mut(at)) {
                *slot = Some(rate);
            } else {
                complete = false;
            }
        }
        let missing: Vec<&str> = tiers
            .names()
            .zip(&rates)
            .filter(|(_, rate)| rate.is_none() && default.is_none())
            .map(|(name, _)| name)
            .collect();
        if complete && !missing.is_empty() {
            let message = format!("no rate for tier {}", missing.join(", "));
            self.refuse(raw.span, message, "give each tier a rate, or add `default: …`");
        }
        rates.into_iter().map(|rate| rate.or(default)).collect()
    }

    fn rate(&mut self, node: &Node) -> Option<Rate> {
        if let Value::Sequence(_) = node.value {
            self.refuse(
                node.span,
                "several windows a rate are not supported yet",
                "write one rate, and a second limit for the other window",
            );
            return None;
        }
        let text = self.text(node)?;
        match text.parse::<Rate>() {
            Ok(rate) => Some(rate),
            Err(error) => {
                self.refuse(node.span, error.to_string(), error.help());
                None
            }
        }
    }
}
