//! Warnings: what is most likely a mistake, but not an error. A configuration with warnings loads.
//!
//! A warning has a place and advice as a problem does, and a rule that programs know it by. Some
//! apply only from an instant on, or with certain settings ([`Warning::holds`]).

use std::fmt;

use ipnet::IpNet;
use tollgate_clock::Timestamp;
use tollgate_keyword::keywords;

use crate::Problem;

/// Something that is most likely a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The kind of mistake.
    pub rule: Rule,
    /// The place, what is unwise, and what to write instead.
    pub problem: Problem,
    /// When it holds.
    pub condition: Condition,
}

/// When a warning holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always,
    /// From this instant on.
    From(Timestamp),
    /// With certain settings.
    With(OnSettings),
}

/// A condition on the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnSettings {
    /// Every client may seem to come from this network.
    AllClientsIn(IpNet),
    /// No listener asks clients for a certificate.
    NoClientCertificates,
}

keywords! {
    /// A kind of warning. Programs know it by its keyword, which does not change.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Rule {
        /// Earlier routes take all requests of a route.
        ShadowedRoute = "shadowed-route",
        /// No route lists a limit.
        UnusedLimit = "unused-limit",
        /// Nothing names a tier.
        UnusedTier = "unused-tier",
        /// A cost that is more than some callers ever have room for.
        UnpayableCost = "unpayable-cost",
        /// The time of an override is over.
        EndedOverride = "ended-override",
        /// An override for a caller, of a limit that counts by something else.
        OverrideNotPerCaller = "override-not-per-caller",
        /// A limit by what clients choose freely.
        UnverifiedKey = "unverified-key",
        /// A limit by what clients may leave out.
        SkippableKey = "skippable-key",
        /// A limit by a claim, on a route that reads no token.
        ClaimWithoutToken = "claim-without-token",
        /// A limit of which no request costs anything.
        NeverCounts = "never-counts",
        /// Two callers are one to an upstream.
        SharedSubject = "shared-subject",
        /// A claim that should name the tenant, and that no token of the provider has.
        TenantClaim = "tenant-claim",
        /// A brace in an issuer that stands for nothing.
        IdleBrace = "idle-brace",
        /// An issuer whose tokens are taken whatever they are for.
        MissingAudience = "missing-audience",
        /// A method that nobody has heard of, and that is close to one of the usual ones.
        UnknownMethod = "unknown-method",
        /// Every address is exempt, or trusted.
        WholeInternet = "whole-internet",
        /// The network of a load balancer may be exempt, and with it every client.
        ExemptBalancer = "exempt-balancer",
        /// A caller is named by its certificate, and no listener asks for one.
        UnaskedCertificate = "unasked-certificate",
        /// Strangers may reach the admin listener.
        PublicAdmin = "public-admin",
        /// Redis stores the secret that hashes the callers' names in its keys.
        MissingKeySecret = "missing-key-secret",
        /// Everybody on the machine can read a secret.
        ReadableSecret = "readable-secret",
        /// A secret is one that the sample publishes.
        PublishedSecret = "published-secret",
        /// A certificate is not valid now, or no client gets it.
        UselessCertificate = "useless-certificate",
        /// A key of a set was skipped.
        SkippedKey = "skipped-key",
        /// A CRL is past its next update.
        StaleCrl = "stale-crl",
        /// An authority whose clients are refused, since it has no CRL.
        MissingCrl = "missing-crl",
    }
}

impl Warning {
    /// One that always holds.
    pub fn new(rule: Rule, problem: Problem) -> Warning {
        Warning { rule, problem, condition: Condition::Always }
    }

    /// Whether it holds at `now`. `meets` answers whether the settings meet a condition.
    pub fn holds(&self, now: Timestamp, meets: impl FnOnce(&OnSettings) -> bool) -> bool {
        match &self.condition {
            Condition::Always => true,
            Condition::From(instant) => *instant <= now,
            Condition::With(settings) => meets(settings),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning: {}", self.problem)
    }
}

impl Rule {
    /// What it is about, in a sentence.
    pub fn summary(self) -> &'static str {
        match self {
            Rule::ShadowedRoute => "Earlier routes take all requests of this route.",
            Rule::UnusedLimit => "No route lists this limit.",
            Rule::UnusedTier => "No rate and no entry of `callers` names this tier.",
            Rule::UnpayableCost => "Some callers can never pay this cost.",
            Rule::EndedOverride => "This override has expired.",
            Rule::OverrideNotPerCaller => {
                "The override is for one caller, but the limit does not count per caller."
            }
            Rule::UnverifiedKey => "Clients can choose the key of this limit freely.",
            Rule::SkippableKey => "Clients can leave out the key of this limit.",
            Rule::ClaimWithoutToken => "The route reads no token, but its limit needs a claim.",
            Rule::NeverCounts => "No request costs anything of this limit.",
            Rule::SharedSubject => "An upstream may take one caller for another.",
            Rule::TenantClaim => "No token of this provider has the claim with the tenant.",
            Rule::IdleBrace => "A brace in this issuer is taken as it is written.",
            Rule::MissingAudience => "Tokens of this issuer for other services are taken.",
            Rule::UnknownMethod => "No client sends this method.",
            Rule::WholeInternet => "Every address is exempt, or trusted.",
            Rule::ExemptBalancer => "All clients may appear to come from an exempt network.",
            Rule::UnaskedCertificate => "No listener asks clients for a certificate.",
            Rule::PublicAdmin => {
                "The admin listener, which needs no token, is on a public address."
            }
            Rule::MissingKeySecret => {
                "Redis stores the secret that hashes the callers' names in its keys."
            }
            Rule::ReadableSecret => "All users of this machine can read a secret.",
            Rule::PublishedSecret => "A secret is the published one of the sample.",
            Rule::UselessCertificate => "A certificate is not valid now, or no client gets it.",
            Rule::SkippedKey => "A key of the set cannot be used, and was skipped.",
            Rule::StaleCrl => "A list of revoked certificates is out of date.",
            Rule::MissingCrl => "An authority has no list of revoked certificates.",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_keyword::Keyword;

    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own() {
        let names: HashSet<&str> = Rule::all().map(Rule::keyword).collect();
        assert_eq!(names.len(), Rule::KEYWORDS.len());
    }
}
