//! A limit to be: which requests it counts, by what, and how much may pass.

use super::pattern::Pattern;
use crate::{draft::no_refund, flow::Flow};

/// The highest number of a rate here.
const MAX_REQUESTS: u64 = 2_147_483_647;

/// Which requests a limit counts, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Keys of which each value has a counter of its own.
    pub(crate) per: Vec<String>,
    /// Keys and values that a request must have, with one counter for all of them.
    pub(crate) is: Vec<(String, String)>,
    /// Keys of `per`, and values that are not limited.
    pub(crate) not: Vec<(String, String)>,
    pub(crate) methods: Methods,
    /// None: on all paths.
    pub(crate) pattern: Option<Pattern>,
    /// A network, and whether the limit is for addresses in it or for all others.
    pub(crate) from: Option<(String, bool)>,
    /// For an address in `is`: all of the network count as one.
    pub(crate) ipv4_prefix: Option<u8>,
    pub(crate) ipv6_prefix: Option<u8>,
}

/// Methods that count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Methods {
    #[default]
    All,
    Only(Vec<String>),
    Except(String),
}

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// In windows of the clock.
    Epoch,
    /// In windows that the first request opens.
    FirstRequest,
    /// A bucket that is refilled evenly.
    Bucket,
}

/// So many requests in a window: `5` and `10s`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) requests: u64,
    pub(crate) window: String,
}

/// A limit.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) name: String,
    /// What it is made of: limits of one rule that have counters of their own have the same.
    pub(crate) origin: String,
    pub(crate) place: String,
    pub(crate) scope: Scope,
    pub(crate) rates: Vec<Rate>,
    pub(crate) counting: Counting,
    /// What a request costs.
    pub(crate) cost: u64,
    pub(crate) is_shadow: bool,
    /// Whose claims it counts by.
    pub(crate) issuers: Vec<String>,
}

impl Methods {
    pub(crate) fn count(&self, method: &str) -> bool {
        match self {
            Methods::All => true,
            Methods::Only(methods) => methods.iter().any(|own| own == method),
            Methods::Except(own) => own != method,
        }
    }

    /// Only these, of those that count.
    pub(crate) fn narrow(&mut self, mut methods: Vec<String>) {
        methods.retain(|method| self.count(method));
        *self = Methods::Only(methods);
    }

    /// All but this one; none if that cannot be said.
    pub(crate) fn exclude(&mut self, method: String) -> Option<()> {
        match self {
            Methods::All => *self = Methods::Except(method),
            Methods::Only(methods) => methods.retain(|own| *own != method),
            Methods::Except(own) => return (*own == method).then_some(()),
        }
        Some(())
    }
}

impl Rate {
    /// What is different if the number is none here.
    pub(crate) fn note(&self) -> Option<String> {
        let Rate { requests, .. } = self;
        (*requests > MAX_REQUESTS)
            .then(|| format!("{requests} is more than a rate here has: unlimited"))
    }

    /// As a limit has it.
    pub(crate) fn text(&self) -> String {
        match self.requests {
            requests if requests > MAX_REQUESTS => "unlimited".to_owned(),
            requests => format!("{requests}/{}", self.window),
        }
    }
}

impl Scope {
    /// All keys, in the order of the limit.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for key in self.is.iter().map(|(key, _)| key).chain(&self.per) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        keys
    }

    /// Whether a request may be in both. No, only where methods, paths or values say so.
    pub(crate) fn may_meet(&self, other: &Scope) -> bool {
        let differs = |(key, value): &(String, String)| {
            other.is.iter().any(|(own, is)| own == key && is != value)
        };
        let paths = match (&self.pattern, &other.pattern) {
            (Some(own), Some(other)) => own.contains(other) || other.contains(own),
            _ => true,
        };
        let methods = match (&self.methods, &other.methods) {
            (Methods::Only(own), others) => own.iter().any(|method| others.count(method)),
            (own, Methods::Only(others)) => others.iter().any(|method| own.count(method)),
            _ => true,
        };
        paths && methods && !self.is.iter().any(differs)
    }
}

impl Limit {
    /// The rate as a limit or an override has it.
    pub(crate) fn rate(&self) -> Flow {
        match self.rates.as_slice() {
            [rate] => rate.text().into(),
            rates => Flow::list(rates.iter().map(Rate::text)),
        }
    }

    /// As the policy has it. `with_tokens`: responses to callers with a token would be given back.
    pub(crate) fn written(&self, with_tokens: bool) -> Flow {
        let Scope { is, ipv4_prefix, ipv6_prefix, .. } = &self.scope;
        let keys = self.scope.keys();
        let per = match keys.as_slice() {
            [] => "all".into(),
            [key] => key.clone().into(),
            keys => Flow::list(keys.iter().cloned()),
        };
        let by_address = keys.iter().any(|key| key == "client.ip");
        let can_miss = keys.iter().any(|key| key.starts_with("header.") || key.starts_with("jwt."));
        let bits = |prefix: Option<u8>| prefix.filter(|_| by_address).map(u64::from);
        let limit = Flow::fields([("per", per)])
            .with_some("ipv4_prefix", bits(*ipv4_prefix))
            .with_some("ipv6_prefix", bits(ipv6_prefix.or(Some(128))))
            .with_some("on_missing", can_miss.then_some("skip"))
            .with("rate", if is.is_empty() { self.rate() } else { "unlimited".into() });
        let limit = match self.counting {
            Counting::Epoch => limit.with("align", "epoch"),
            Counting::FirstRequest => limit,
            Counting::Bucket => limit.with("algorithm", "gcra"),
        };
        let table = |methods: &[String], those: u64, others: u64| {
            let own = methods.iter().map(|method| (method.clone(), those.into()));
            Flow::Fields(own.chain([("default".to_owned(), others.into())]).collect())
        };
        let limit = match &self.scope.methods {
            Methods::All if self.cost == 1 => limit,
            Methods::All => limit.with("cost", self.cost),
            Methods::Only(methods) => limit.with("cost", table(methods, self.cost, 0)),
            Methods::Except(method) => {
                limit.with("cost", table(std::slice::from_ref(method), 0, self.cost))
            }
        };
        limit
            .with_some("refund", with_tokens.then(no_refund))
            .with_some("mode", self.is_shadow.then_some("shadow"))
    }

    /// Its overrides; the first that matches holds. `has_issuers`: there are several.
    pub(crate) fn overrides(&self, has_issuers: bool) -> Vec<Flow> {
        let Scope { is, not, .. } = &self.scope;
        let mut overrides = Vec::new();
        let mut add = |values: &[(String, String)], rate: &Flow| {
            let by_claim = values.iter().any(|(key, _)| key.starts_with("jwt."));
            let issuers: Vec<Option<&String>> = match has_issuers && by_claim {
                true => self.issuers.iter().map(Some).collect(),
                false => vec![None],
            };
            for issuer in issuers {
                let mut own = vec![("limit".to_owned(), Flow::from(self.name.clone()))];
                own.extend(values.iter().map(|(key, value)| (key.clone(), value.clone().into())));
                own.extend(issuer.map(|name| ("issuer".to_owned(), name.clone().into())));
                own.push(("rate".to_owned(), rate.clone()));
                own.push(("why".to_owned(), format!("imported from {}", self.place).into()));
                overrides.push(Flow::Fields(own));
            }
        };
        not.iter().for_each(|value| add(std::slice::from_ref(value), &"unlimited".into()));
        if !is.is_empty() {
            add(is, &self.rate());
        }
        overrides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_meet_unless_methods_paths_or_values_differ() {
        let only = |method: &str| Methods::Only(vec![method.to_owned()]);
        let of = |methods: Methods| Scope { methods, ..Scope::default() };
        let at = |path: &str| Scope { pattern: Some(Pattern::below(path)), ..Scope::default() };
        let who = |value: &str| Scope {
            is: vec![("header.a".to_owned(), value.to_owned())],
            ..Scope::default()
        };
        for (one, other, expected) in [
            (Scope::default(), of(only("PUT")), true),
            (of(only("PUT")), of(only("POST")), false),
            (of(only("PUT")), of(Methods::Except("PUT".to_owned())), false),
            (of(Methods::Except("GET".to_owned())), of(Methods::Except("PUT".to_owned())), true),
            (at("/a"), at("/a/b"), true),
            (at("/a"), at("/b"), false),
            (who("1"), who("1"), true),
            (who("1"), who("2"), false),
            (who("1"), at("/a"), true),
        ] {
            assert_eq!(one.may_meet(&other), expected, "{one:?} {other:?}");
            assert_eq!(other.may_meet(&one), expected, "{other:?} {one:?}");
        }
    }

    #[test]
    fn limit_says_what_it_counts_and_overrides_say_whom() {
        let limit = Limit {
            name: "a".to_owned(),
            origin: "a".to_owned(),
            place: "f:1".to_owned(),
            scope: Scope {
                per: vec!["header.u".to_owned(), "client.ip".to_owned()],
                is: vec![("header.o".to_owned(), "acme".to_owned())],
                not: vec![("header.u".to_owned(), "admin".to_owned())],
                methods: Methods::Only(vec!["POST".to_owned()]),
                ..Scope::default()
            },
            rates: vec![Rate { requests: 3, window: "hour".to_owned() }],
            counting: Counting::Epoch,
            cost: 2,
            is_shadow: true,
            issuers: vec!["id".to_owned()],
        };
        assert_eq!(
            limit.written(true).to_string(),
            "{ per: [header.o, header.u, client.ip], ipv6_prefix: 128, on_missing: skip, \
             rate: unlimited, align: epoch, cost: { POST: 2, default: 0 }, \
             refund: { status: [] }, mode: shadow }"
        );
        let overrides: Vec<String> = limit.overrides(true).iter().map(Flow::to_string).collect();
        assert_eq!(
            overrides,
            [
                "{ limit: a, header.u: admin, rate: unlimited, why: \"imported from f:1\" }",
                "{ limit: a, header.o: acme, rate: 3/hour, why: \"imported from f:1\" }",
            ]
        );
    }
}
