//! Issuers, callers, tokens: the `identity` section.

use std::{str::FromStr, time::Duration};

use super::{Compiler, words::Names};
use crate::{
    identity::{
        Algorithm, Caller, CallerKey, IdentityRules, InvalidToken, Issuer, KeyHints, KeySet,
        RulesId, TierSource, Tiers, TokenSources,
    },
    policy::file::{RawCaller, RawIdentity, RawIssuer, RawToken},
    yaml::Spanned,
};

/// Largest key file that is read.
const MAX_KEY_FILE_BYTES: u64 = 256 * 1024;

#[derive(Clone, Copy)]
enum KeySource {
    Pem,
    Jwks,
    SecretFile,
    SecretVariable,
}

impl Compiler<'_> {
    pub(super) fn identity(&mut self, raw: &RawIdentity, tiers: &Tiers) -> Option<IdentityRules> {
        let issuers: Vec<Issuer> =
            raw.jwt.iter().filter_map(|issuer| self.issuer(issuer)).collect();
        self.refuse_twice(raw.jwt.iter().map(|issuer| &issuer.value.issuer), "issuer");
        self.refuse_twice(
            raw.jwt.iter().filter_map(|issuer| issuer.value.name.as_ref()),
            "name of an issuer",
        );

        let callers: Vec<Caller> =
            raw.callers.iter().filter_map(|caller| self.caller(&caller.value, tiers)).collect();
        self.refuse_twice(raw.callers.iter().map(|caller| &caller.value.name), "name of a caller");

        let invalid_token = match &raw.invalid_token {
            None => Some(InvalidToken::Reject),
            Some(raw) => self.one_of(
                raw,
                &[("reject", InvalidToken::Reject), ("anonymous", InvalidToken::Anonymous)],
            ),
        };
        let sources = self.token_sources(&raw.token);
        Some(IdentityRules {
            id: RulesId::unique(),
            issuers,
            callers,
            tiers: tiers.clone(),
            invalid_token: invalid_token?,
            sources: sources?,
        })
    }

    fn issuer(&mut self, spanned: &Spanned<RawIssuer>) -> Option<Issuer> {
        let raw = &spanned.value;
        if raw.issuer.value.is_empty() {
            self.refuse(raw.issuer.span, "an issuer is not empty", "write the `iss` of its tokens");
        }
        let algorithms: Vec<Algorithm> = raw
            .algorithms
            .iter()
            .filter_map(|name| {
                let algorithm = Algorithm::from_str(&name.value).ok();
                if algorithm.is_none() {
                    let message = format!("signature algorithm `{}` is not supported", name.value);
                    self.refuse(name.span, message, "one of: HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA");
                }
                algorithm
            })
            .collect();
        let leeway = match &raw.leeway {
            Some(leeway) if leeway.value == "0s" => Some(Duration::ZERO),
            leeway => self.duration(leeway.as_ref(), Duration::from_secs(60)),
        };
        if let (Some(leeway), Some(raw)) = (leeway, &raw.leeway)
            && leeway > Duration::from_secs(300)
        {
            self.refuse(raw.span, "a leeway of more than 5 minutes", "write at most 300s");
        }
        let max_age = match &raw.max_age {
            None => Some(None),
            Some(max_age) => self.duration(Some(max_age), Duration::ZERO).map(Some),
        };
        let keys = self.keys(spanned, &algorithms);
        let texts = |list: &[Spanned<String>]| list.iter().map(|text| text.value.clone()).collect();
        Some(Issuer {
            name: issuer_name(spanned).to_owned(),
            issuer: raw.issuer.value.clone(),
            audience: texts(&raw.audience),
            types: texts(&raw.types),
            key_hints: KeyHints::Reject,
            leeway: leeway?,
            max_age: max_age?,
            require_exp: true,
            keys: keys?,
        })
    }

    fn keys(&mut self, issuer: &Spanned<RawIssuer>, algorithms: &[Algorithm]) -> Option<KeySet> {
        let raw = &issuer.value;
        let given: Vec<(&Spanned<String>, KeySource)> = [
            (&raw.public_key_file, KeySource::Pem),
            (&raw.jwks_file, KeySource::Jwks),
            (&raw.secret_file, KeySource::SecretFile),
            (&raw.secret_env, KeySource::SecretVariable),
        ]
        .into_iter()
        .filter_map(|(field, source)| Some((field.as_ref()?, source)))
        .collect();
        let (place, source) = match given.as_slice() {
            [(place, source)] => (*place, *source),
            [] => {
                self.refuse(
                    raw.issuer.span,
                    "an issuer without keys",
                    "add one of: public_key_file, jwks_file, secret_file, secret_env",
                );
                return None;
            }
            [_, (second, _), ..] => {
                self.refuse(
                    second.span,
                    "keys from more than one source",
                    "keep one of: public_key_file, jwks_file, secret_file, secret_env",
                );
                return None;
            }
        };
        let material = match source {
            KeySource::SecretVariable => match self.sources.variable(&place.value) {
                Some(secret) => secret.into_bytes(),
                None => {
                    let message = format!("environment variable `{}` is not set", place.value);
                    self.refuse(place.span, message, "set it to the shared secret");
                    return None;
                }
            },
            _ => self.read(place)?,
        };
        let keys = match source {
            KeySource::Pem => KeySet::from_pem(&material, algorithms),
            KeySource::Jwks => KeySet::from_jwks(&material, algorithms).map(|(keys, skipped)| {
                for key in skipped {
                    tracing::warn!(file = %place.value, key = %key, "skipped a key of a key set");
                }
                keys
            }),
            // Editors end files with a line break that is no part of the secret.
            KeySource::SecretFile => KeySet::from_secret(material.trim_ascii_end(), algorithms),
            KeySource::SecretVariable => KeySet::from_secret(&material, algorithms),
        };
        match keys {
            Ok(keys) => Some(keys),
            Err(error) => {
                self.refuse(place.span, error.to_string(), "");
                None
            }
        }
    }

    fn read(&mut self, path: &Spanned<String>) -> Option<Vec<u8>> {
        match self.sources.read(&self.folder.join(&path.value), MAX_KEY_FILE_BYTES) {
            Ok(content) => Some(content),
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", path.value);
                self.refuse(path.span, message, "write a path from this file's folder");
                None
            }
        }
    }

    fn caller(&mut self, raw: &RawCaller, tiers: &Tiers) -> Option<Caller> {
        self.check_name(&raw.name, "caller");
        let prefix = raw.ipv6_prefix.as_ref().map_or(64, |prefix| prefix.value);
        if let Some(raw) = &raw.ipv6_prefix
            && !(32..=128).contains(&prefix)
        {
            self.refuse(
                raw.span,
                "an IPv6 prefix out of range",
                "write 32 to 128; 64 is one customer's network",
            );
        }
        let key = match raw.key.value.split_once('.') {
            Some(("client", "ip")) => CallerKey::Address { ipv6_prefix: prefix },
            Some(("jwt", claim)) if !claim.is_empty() => CallerKey::Claim(claim.into()),
            _ => {
                let message = format!("`{}` does not name a caller", raw.key.value);
                self.refuse(
                    raw.key.span,
                    message,
                    "write jwt.sub, another claim as jwt.<name>, or client.ip",
                );
                return None;
            }
        };
        if let (CallerKey::Claim(_), Some(prefix)) = (&key, &raw.ipv6_prefix) {
            self.refuse(prefix.span, "`ipv6_prefix` needs `key: client.ip`", "remove it");
        }
        let tier = match &raw.tier {
            None => TierSource::Default,
            Some(tier) => match tier.value.split_once('.') {
                Some(("jwt", claim)) if !claim.is_empty() => TierSource::Claim(claim.into()),
                _ => {
                    let names = Names { kind: "tier", names: tiers.names().collect() };
                    TierSource::Fixed(self.resolve(tier, &names)?)
                }
            },
        };
        if let (CallerKey::Address { .. }, TierSource::Claim(_), Some(place)) =
            (&key, &tier, &raw.tier)
        {
            self.refuse(
                place.span,
                "a caller without a token has no claims",
                "write the name of a tier",
            );
        }
        Some(Caller { name: raw.name.value.as_str().into(), key, tier })
    }

    fn token_sources(&mut self, raw: &RawToken) -> Option<TokenSources> {
        let header = match &raw.header {
            None => None,
            Some(raw) => Some(self.header_name(raw)?),
        };
        let cookie = match &raw.cookie {
            None => None,
            Some(raw) => Some(self.cookie_name(raw)?),
        };
        Some(TokenSources { header, cookie, forward: raw.forward })
    }
}

/// What routes call an issuer.
pub(super) fn issuer_name(raw: &Spanned<RawIssuer>) -> &str {
    raw.value.name.as_ref().map_or(&raw.value.issuer.value, |name| &name.value)
}
