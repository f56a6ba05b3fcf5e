//! The issuer that a policy knows, for tokens that the policy is to take.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{anyhow, bail};
use tollgate_clock::Timestamp;
use tollgate_identity::{Algorithm, Issuer, IssuerClaim, TenantIssuer};
use tollgate_policy::Policies;

use super::super::{
    Failure,
    configured::{Configured, sources_of},
    settings_file::usual_settings,
};

/// The issuer whose tokens are wanted.
pub(super) enum Recipient {
    /// One that a policy knows.
    Known(Box<Issuer>),
    /// One that no policy was read for, by its claim `iss`.
    Unknown(String),
}

impl Recipient {
    /// The issuer of this name, or the only one, in the policies at `path`, or at a usual place.
    pub(super) fn find(path: Option<&Path>, name: Option<&str>) -> Result<Recipient, Failure> {
        let found = match (path, name) {
            (Some(path), _) => Some(Configured::read(path, &sources_of(&[path])?)?),
            (None, None) => {
                let read = |file: PathBuf| Configured::read(&file, &sources_of(&[&file])?);
                usual_settings().map(read).transpose()?
            }
            // It is enough to sign with, if the policies are of no use.
            (None, Some(_)) => {
                let read =
                    |file: PathBuf| Configured::read(&file, &sources_of(&[&file]).ok()?).ok();
                usual_settings().and_then(read)
            }
        };
        let issuers = found.as_ref().map(|found| issuers(&found.policies)).unwrap_or_default();
        if let Some(name) = name {
            let is_it = |issuer: &&&Issuer| issuer.name == name || issuer.issuer == name;
            return match issuers.iter().find(is_it) {
                Some(issuer) => Ok(Recipient::Known(Box::new((*issuer).clone()))),
                None if path.is_none() => Ok(Recipient::Unknown(name.to_owned())),
                None => {
                    Err(anyhow!("no policy knows the issuer `{name}`: {}", names(&issuers)).into())
                }
            };
        }
        match issuers.as_slice() {
            [issuer] => Ok(Recipient::Known(Box::new((*issuer).clone()))),
            [] if found.is_none() => Err(anyhow!(
                "no policy to make a token for: give --policy, or --issuer and --audience (there are \
                 no settings in the usual places)"
            )
            .into()),
            [] => Err(anyhow!("the policy takes no JWT: it has no `identity.jwt`").into()),
            several => Err(anyhow!("give --issuer: {}", names(several)).into()),
        }
    }

    /// The claim `iss`, if all its tokens have the same one.
    pub(super) fn issuer(&self) -> Option<&str> {
        match self {
            Recipient::Known(issuer) if issuer.claim != IssuerClaim::Exact => None,
            Recipient::Known(issuer) => Some(&issuer.issuer),
            Recipient::Unknown(name) => Some(name),
        }
    }

    /// Whose tenants its tokens are of, if it has any.
    pub(super) fn tenants(&self) -> Option<&TenantIssuer> {
        self.known()?.tenants()
    }

    /// Who tokens are for.
    pub(super) fn audience(&self) -> Option<&str> {
        self.known()?.claims.audience.first().map(String::as_str)
    }

    /// The type that the header of a token is to name.
    pub(super) fn token_type(&self) -> &str {
        self.known().and_then(|issuer| issuer.types.first()).map_or("JWT", String::as_str)
    }

    /// `usual`, or how long tokens may live if that is shorter.
    pub(super) fn lifetime(&self, usual: Duration) -> Duration {
        let longest = self.known().and_then(|issuer| issuer.max_lifetime);
        longest.map_or(usual, |longest| usual.min(longest))
    }

    pub(super) fn allows(&self, algorithm: Algorithm) -> bool {
        self.known().is_some_and(|issuer| issuer.keys.allows(algorithm))
    }

    /// Whether a token may name its key so. Keys of a set that has other names would not be found.
    pub(super) fn takes_key_id(&self, name: &str) -> bool {
        let keys = self.known().and_then(|issuer| issuer.keys.fixed());
        keys.is_none_or(|keys| !keys.is_named() || keys.has_name(name))
    }

    /// Whether the policy takes this token, as far as that is known here.
    pub(super) fn check(&self, token: &str, now: Timestamp) -> anyhow::Result<()> {
        let Some(issuer) = self.known() else { return Ok(()) };
        match issuer.check_token(token, now) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                bail!("the policy's issuer `{}` would refuse this token: {error}", issuer.name)
            }
        }
    }

    fn known(&self) -> Option<&Issuer> {
        match self {
            Recipient::Known(issuer) => Some(issuer),
            Recipient::Unknown(_) => None,
        }
    }
}

/// The issuers of all policies, each `iss` once.
fn issuers(policies: &Policies) -> Vec<&Issuer> {
    let mut issuers: Vec<&Issuer> = Vec::new();
    for issuer in policies.iter().flat_map(|policy| &policy.identity.issuers) {
        if !issuers.iter().any(|known| known.issuer == issuer.issuer) {
            issuers.push(issuer);
        }
    }
    issuers
}

fn names(issuers: &[&Issuer]) -> String {
    let names: Vec<&str> = issuers.iter().map(|issuer| issuer.name.as_str()).collect();
    match names.as_slice() {
        [] => "the policies know none".into(),
        names => format!("one of {}", names.join(", ")),
    }
}
