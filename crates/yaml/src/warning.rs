//! Warnings: what is most likely a mistake, but not an error. A configuration with warnings loads.
//!
//! A warning has a place and advice as a problem does, and a rule that programs know it by. Some
//! apply only from an instant on, or with certain settings ([`Warning::holds`]).

use std::fmt;

use ipnet::IpNet;
use tollgate_clock::Timestamp;

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
    /// Where every client may seem to come from this network, which is exempt.
    Exempt(IpNet),
}

/// A kind of warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Earlier routes take all requests of a route.
    ShadowedRoute,
    /// No route lists a limit.
    UnusedLimit,
    /// Nothing names a tier.
    UnusedTier,
    /// The time of an override is over.
    EndedOverride,
    /// An override for a caller, of a limit that counts by something else.
    OverrideNotPerCaller,
    /// A limit by what clients choose freely.
    UnverifiedKey,
    /// Every address is exempt, or trusted.
    WholeInternet,
    /// The network of a load balancer may be exempt, and with it every client.
    ExemptBalancer,
    /// Strangers may reach the admin listener.
    PublicAdmin,
    /// Redis stores the secret that hashes the callers' names in its keys.
    MissingKeySecret,
    /// Everybody on the machine can read a secret.
    ReadableSecret,
    /// A secret is one that the sample publishes.
    PublishedSecret,
    /// A certificate is not valid now, or no client gets it.
    UselessCertificate,
    /// A key of a set was skipped.
    SkippedKey,
    /// A CRL is past its next update.
    StaleCrl,
    /// An authority whose clients are refused, since it has no CRL.
    MissingCrl,
}

impl Warning {
    /// One that always holds.
    pub fn new(rule: Rule, problem: Problem) -> Warning {
        Warning { rule, problem, condition: Condition::Always }
    }

    /// Whether it holds at `now`. `may_see_all_in` answers, by the settings, whether every client
    /// may seem to come from a network.
    pub fn holds(&self, now: Timestamp, may_see_all_in: impl FnOnce(&IpNet) -> bool) -> bool {
        match &self.condition {
            Condition::Always => true,
            Condition::From(instant) => *instant <= now,
            Condition::Exempt(network) => may_see_all_in(network),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning: {}", self.problem)
    }
}

impl Rule {
    /// Every kind.
    pub const ALL: [Rule; 16] = [
        Rule::ShadowedRoute,
        Rule::UnusedLimit,
        Rule::UnusedTier,
        Rule::EndedOverride,
        Rule::OverrideNotPerCaller,
        Rule::UnverifiedKey,
        Rule::WholeInternet,
        Rule::ExemptBalancer,
        Rule::PublicAdmin,
        Rule::MissingKeySecret,
        Rule::ReadableSecret,
        Rule::PublishedSecret,
        Rule::UselessCertificate,
        Rule::SkippedKey,
        Rule::StaleCrl,
        Rule::MissingCrl,
    ];

    /// What programs know it by. It does not change.
    pub fn name(self) -> &'static str {
        match self {
            Rule::ShadowedRoute => "shadowed-route",
            Rule::UnusedLimit => "unused-limit",
            Rule::UnusedTier => "unused-tier",
            Rule::EndedOverride => "ended-override",
            Rule::OverrideNotPerCaller => "override-not-per-caller",
            Rule::UnverifiedKey => "unverified-key",
            Rule::WholeInternet => "whole-internet",
            Rule::ExemptBalancer => "exempt-balancer",
            Rule::PublicAdmin => "public-admin",
            Rule::MissingKeySecret => "missing-key-secret",
            Rule::ReadableSecret => "readable-secret",
            Rule::PublishedSecret => "published-secret",
            Rule::UselessCertificate => "useless-certificate",
            Rule::SkippedKey => "skipped-key",
            Rule::StaleCrl => "stale-crl",
            Rule::MissingCrl => "missing-crl",
        }
    }

    /// What it is about, in a sentence.
    pub fn summary(self) -> &'static str {
        match self {
            Rule::ShadowedRoute => "Earlier routes take all requests of this route.",
            Rule::UnusedLimit => "No route lists this limit.",
            Rule::UnusedTier => "No rate and no entry of `callers` names this tier.",
            Rule::EndedOverride => "This override has expired.",
            Rule::OverrideNotPerCaller => {
                "The override is for one caller, but the limit does not count per caller."
            }
            Rule::UnverifiedKey => "Clients can choose the key of this limit freely.",
            Rule::WholeInternet => "Every address is exempt, or trusted.",
            Rule::ExemptBalancer => "All clients may appear to come from an exempt network.",
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

    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own() {
        let names: HashSet<&str> = Rule::ALL.map(Rule::name).into();
        assert_eq!(names.len(), Rule::ALL.len());
    }
}
