//! Callers that are one to an upstream that reads `X-Tollgate-Subject`: the same name by two
//! issuers, or by two kinds of callers, of one policy or of two.

use tollgate_identity::{Auth, CallerKey, IdentityRules};
use tollgate_yaml::{
    Check, Problem, Span,
    warning::{Rule, Warning},
};

use crate::{
    Policy, Server,
    compile::Compiler,
    file::{RawIdentity, RawPolicy},
};

/// Who vouches for the subjects of a policy, as other policies know it.
pub struct Vouchers {
    /// Where a warning about them stands. None: that subjects are shared is meant.
    place: Option<Problem>,
    /// Those of each issuer, by its position: its id, or where its callers are asked for.
    ids: Vec<String>,
}

/// Whose word a subject is.
#[derive(Clone, Copy)]
struct Origin<'p> {
    /// The position of the issuer.
    issuer: usize,
    /// The position of the entry of `callers`.
    rule: usize,
    kind: &'p str,
    /// Its tenant, with a slash, if the issuer has several.
    tenant: &'static str,
}

impl Compiler<'_> {
    pub(super) fn warn_of_shared_subjects(&mut self, raw: &RawPolicy, policy: &Policy) {
        if raw.identity.shared_subjects {
            return;
        }
        for (position, upstream) in policy.upstreams.iter().enumerate() {
            let [one, other, ..] = origins(policy, position)[..] else { continue };
            let message = format!(
                "{} and {} have one `X-Tollgate-Subject` at upstream `{}`",
                called(one, policy),
                called(other, policy),
                upstream.name
            );
            let help = "have the upstream read `X-Tollgate-Caller`, and write \
                        `shared_subjects: true` under `identity`";
            let Some(place) = place(&raw.identity, one, other) else { continue };
            self.warn(Rule::SharedSubject, place, message, help);
            return;
        }
    }

    /// Who vouches for the subjects of a policy.
    pub(in crate::compile) fn vouchers(
        &self,
        raw: &RawIdentity,
        rules: &IdentityRules,
    ) -> Vouchers {
        let mut ids: Vec<String> =
            rules.issuers.iter().map(|issuer| issuer.issuer.clone()).collect();
        let mut places: Vec<Span> = raw.jwt.iter().map(|own| own.value.issuer.span).collect();
        // Policies call theirs by the same names, whichever server or file they ask.
        if let Some(introspection) = &raw.introspection {
            ids.push(format!("introspection:{}", introspection.value.url.value));
            places.push(introspection.value.url.span);
        }
        if let Some(keys) = &raw.api_keys {
            let file = self.inspection.folder.join(&keys.value.file.value);
            ids.push(format!("api_keys:{}", file.display()));
            places.push(keys.value.file.span);
        }
        let place = places.first().filter(|_| !raw.shared_subjects);
        let place = place.map(|span| self.inspection.document.problem(*span, "", ""));
        Vouchers { place, ids }
    }
}

/// Warns where two policies send callers to one server who may have one name there.
pub(crate) fn warn_across(policies: &mut [Policy]) {
    let mut found = Vec::new();
    for (at, policy) in policies.iter().enumerate() {
        let earlier = policies.iter().take(at).enumerate();
        found.extend(earlier.filter_map(|(other, earlier)| {
            let names = shared_names(earlier, policy)?;
            let here = [(at, policy), (other, earlier)].into_iter();
            let (warned, place) =
                here.filter_map(|(at, own)| Some((at, own.vouchers.place.as_ref()?))).next()?;
            let message = format!(
                "callers of policy `{}` and of policy `{}` may have {} at a server that both have",
                earlier.name,
                policy.name,
                names.message()
            );
            let problem = place.saying(message, names.help());
            Some((warned, Warning::new(Rule::SharedSubject, problem)))
        }));
    }
    for (at, warning) in found {
        let Some(policy) = policies.get_mut(at) else { continue };
        policy.warnings.push(warning);
        policy.warnings.sort_by(|one, other| one.problem.cmp(&other.problem));
    }
}

/// Which names callers of two policies may have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SharedNames {
    Subject,
    /// The whole name, too.
    Caller,
}

impl SharedNames {
    fn message(self) -> &'static str {
        match self {
            SharedNames::Subject => "one `X-Tollgate-Subject`",
            SharedNames::Caller => "one `X-Tollgate-Caller` and one `X-Tollgate-Subject`",
        }
    }

    fn help(self) -> &'static str {
        match self {
            SharedNames::Subject => {
                "have the server read `X-Tollgate-Caller`, and write `shared_subjects: true` under \
                 `identity` of both policies"
            }
            SharedNames::Caller => {
                "put the issuers in one policy, or give its `callers` other names (`name: \
                 partner`), and have the server read `X-Tollgate-Caller`; or write \
                 `shared_subjects: true` under `identity` of both policies"
            }
        }
    }
}

/// What callers of two policies may share at a server that both have. What one policy alone has is
/// for its own warning.
fn shared_names(one: &Policy, other: &Policy) -> Option<SharedNames> {
    let pairs = (0..one.upstreams.len())
        .flat_map(|own| (0..other.upstreams.len()).map(move |others| (own, others)));
    let met = pairs.filter(|(own, others)| {
        let upstreams = one.upstreams.get(*own).zip(other.upstreams.get(*others));
        upstreams.is_some_and(|(one, other)| {
            let is_there = |own: &Server| {
                other.servers.iter().any(|other| {
                    own.port == other.port && own.host.eq_ignore_ascii_case(&other.host)
                })
            };
            one.servers.iter().any(is_there)
        })
    });
    met.filter_map(|(own, others)| {
        names_at(one, &origins(one, own), other, &origins(other, others))
    })
    .max()
}

fn names_at(
    one: &Policy,
    own: &[Origin<'_>],
    other: &Policy,
    others: &[Origin<'_>],
) -> Option<SharedNames> {
    let only_here = own.iter().filter(|origin| {
        !others.iter().any(|there| subject_of(one, origin) == subject_of(other, there))
    });
    let only_there: Vec<&Origin<'_>> = others
        .iter()
        .filter(|there| {
            !own.iter().any(|origin| subject_of(one, origin) == subject_of(other, there))
        })
        .collect();
    let pairs = only_here.flat_map(|origin| only_there.iter().map(move |there| (origin, *there)));
    pairs
        .map(|(origin, there)| match called(*origin, one) == called(*there, other) {
            true => SharedNames::Caller,
            false => SharedNames::Subject,
        })
        .max()
}

/// What a subject says, and who vouches for it: the same for the same people.
fn subject_of<'p>(policy: &'p Policy, origin: &Origin<'_>) -> Option<(&'p str, &'p CallerKey)> {
    let id = policy.vouchers.ids.get(origin.issuer)?;
    Some((id, &policy.identity.callers.get(origin.rule)?.key))
}

/// Whose subjects get to the upstream at this position.
fn origins(policy: &Policy, upstream: usize) -> Vec<Origin<'_>> {
    let rules = &policy.identity;
    let is_taken = |issuer: usize| {
        policy.routes.iter().filter(|route| route.upstream == upstream).any(|route| {
            match &route.auth {
                Auth::None => false,
                Auth::Optional(accepted) | Auth::Required(accepted) => {
                    accepted.issuers.contains(issuer)
                }
            }
        })
    };
    let issuers = (0..=rules.api_keys_position()).filter(|issuer| is_taken(*issuer));
    let all = issuers.flat_map(|issuer| of_issuer(rules, issuer));
    all.flat_map(|origin| {
        let has_tenants =
            rules.issuers.get(origin.issuer).is_some_and(|own| own.tenants().is_some());
        let tenants: &[&str] = if has_tenants { &["one/", "another/"] } else { &[""] };
        tenants.iter().map(move |tenant| Origin { tenant, ..origin })
    })
    .collect()
}

/// The kinds of callers that tokens of an issuer, or API keys, name.
fn of_issuer(rules: &IdentityRules, issuer: usize) -> impl Iterator<Item = Origin<'_>> {
    let is_key = issuer == rules.api_keys_position();
    let has_keys = rules.api_keys.is_some();
    rules.callers.iter().enumerate().filter_map(move |(rule, caller)| {
        let names = match caller.key {
            CallerKey::Claim(_) => !is_key,
            CallerKey::ApiKey(_) => is_key && has_keys,
            CallerKey::Certificate(_) | CallerKey::Address { .. } => false,
        };
        names.then_some(Origin { issuer, rule, kind: &caller.name, tenant: "" })
    })
}

/// Caller 42 of an origin, as policies write it.
fn called(origin: Origin<'_>, policy: &Policy) -> String {
    let Origin { issuer, kind, tenant, rule: _ } = origin;
    match policy.identity.issuer_in_names(issuer) {
        Some(issuer) => format!("`{issuer}/{tenant}{kind}:42`"),
        None => format!("`{tenant}{kind}:42`"),
    }
}

/// Where the second of two origins is written: the kind or, if both have one, the issuer.
fn place(identity: &RawIdentity, one: Origin<'_>, other: Origin<'_>) -> Option<Span> {
    if one.rule != other.rule {
        return identity.callers.get(other.rule).map(|caller| caller.value.name.span);
    }
    let of_jwt = identity.jwt.get(other.issuer).map(|issuer| issuer.value.issuer.span);
    of_jwt.or_else(|| identity.introspection.as_ref().map(|other| other.value.url.span))
}
