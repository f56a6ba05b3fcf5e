//! Callers, token sources and forwarded claims: the `identity` section. Who vouches for callers is
//! in `issuers`.

use http::HeaderName;
use tollgate_identity::{
    Caller, CallerKey, CertificateName, ForwardedClaims, IdentityRules, InvalidToken, Issuer,
    Scheme, TierSource, Tiers, TokenPlace, TokenSources,
};
use tollgate_keyword::Keyword;
use tollgate_yaml::{Check, Choice, Spanned};

use super::{Compiler, issuers::NO_ISSUER, written::written_at};
use crate::file::{RawCaller, RawForwardClaims, RawIdentity};

/// Headers that say something of the request itself: what else is in one of them is taken for it.
const TAKEN: &[&str] =
    &["authorization", "content-length", "content-type", "cookie", "forwarded", "x-request-id"];

impl Compiler<'_> {
    pub(super) fn identity(&mut self, raw: &RawIdentity, tiers: &Tiers) -> Option<IdentityRules> {
        let issuers: Vec<Issuer> =
            raw.jwt.iter().filter_map(|issuer| self.issuer(issuer)).collect();
        let with_iss = raw.jwt.iter().map(|issuer| &issuer.value.issuer);
        self.refuse_twice(with_iss.filter(|issuer| issuer.value != NO_ISSUER), "issuer");
        self.refuse_confused(raw, &issuers);
        let names = raw.jwt.iter().filter_map(|issuer| issuer.value.name.as_ref());
        let others = raw.introspection.as_ref().and_then(|other| other.value.name.as_ref());
        let keys = raw.api_keys.as_ref().and_then(|keys| keys.value.name.as_ref());
        self.refuse_twice(names.chain(others).chain(keys), "name of an issuer");
        let introspection = match &raw.introspection {
            Some(raw) => Some(self.introspection(&raw.value)?),
            None => None,
        };
        let api_keys = match &raw.api_keys {
            Some(raw) => Some(self.api_keys(&raw.value)?),
            None => None,
        };

        let callers: Vec<Caller> = raw
            .callers
            .iter()
            .filter_map(|caller| self.caller(&caller.value, raw.api_keys.is_some(), tiers))
            .collect();
        self.refuse_twice(raw.callers.iter().map(|caller| &caller.value.name), "name of a caller");

        let invalid_token = match &raw.invalid_token {
            None => Some(InvalidToken::Reject),
            Some(raw) => self.keyword(raw),
        };
        let (api_keys, api_key_header) = api_keys.unzip();
        let sources = self.token_sources(raw, api_key_header);
        self.refuse_unread_places(raw);
        let forwarded = self.forwarded(&raw.forward_claims);
        Some(IdentityRules {
            id: self.rules_id(),
            issuers,
            introspection,
            api_keys,
            callers,
            tiers: tiers.clone(),
            invalid_token: invalid_token?,
            sources: sources?,
            forwarded: forwarded?,
        })
    }

    /// Issuers whose tokens have no `iss` are told apart by keys or by places.
    fn refuse_confused(&mut self, raw: &RawIdentity, issuers: &[Issuer]) {
        // One with a mistake is not among them.
        if issuers.len() != raw.jwt.len() {
            return;
        }
        for (at, (issuer, written)) in issuers.iter().zip(&raw.jwt).enumerate() {
            let tenants = |other: &Issuer| Some(other.tenants()?.overlaps(issuer.tenants()?));
            let mut earlier = issuers.iter().take(at);
            if let Some(other) = earlier.clone().find(|other| tenants(other) == Some(true)) {
                let message = format!("an `iss` may be one of `{}` too", other.name);
                let help = "make one entry of both, with all tenants";
                self.refuse(written.value.issuer.span, message, help);
            }
            if let Some(other) = earlier.find(|other| other.is_confused_with(issuer)) {
                let message = format!("a token without `iss` may be one of `{}` too", other.name);
                let help = "give the keys of each a `kid` of its own, or say where each one's \
                            tokens are: `from: [cookie]`";
                self.refuse(written.value.issuer.span, message, help);
            }
        }
    }

    /// Tokens of an issuer come from a place where the policy looks for tokens.
    fn refuse_unread_places(&mut self, raw: &RawIdentity) {
        for place in raw.jwt.iter().flat_map(|issuer| &issuer.value.from) {
            let field = place.value.as_ref();
            let is_read = match TokenPlace::from_keyword(field) {
                Some(TokenPlace::Header) => raw.token.header.is_some(),
                Some(TokenPlace::Cookie) => raw.token.cookie.is_some(),
                Some(TokenPlace::Query) => raw.token.query.is_some(),
                Some(TokenPlace::Authorization) | None => true,
            };
            let path = ["identity", "token", field];
            // What is written there may be of a wrong type.
            if !is_read && written_at(self.inspection.document, &path).is_none() {
                let message = format!("no token is read from a {field}");
                self.refuse(place.span, message, format!("name it as `token: {{ {field}: ... }}`"));
            }
        }
    }

    fn caller(&mut self, raw: &RawCaller, has_keys: bool, tiers: &Tiers) -> Option<Caller> {
        self.check_name(&raw.name, "caller");
        let prefix = raw.ipv6_prefix.as_ref().map_or(64, |prefix| prefix.value);
        if let Some(raw) = &raw.ipv6_prefix
            && !(32..=128).contains(&prefix)
        {
            self.note(
                raw.span,
                "an IPv6 prefix out of range",
                "write 32 to 128; 64 is one customer's network",
            );
        }
        let key = match raw.key.value.split_once('.') {
            Some(("client", "ip")) => CallerKey::Address { ipv6_prefix: prefix },
            Some(("jwt", claim)) if !claim.is_empty() => {
                CallerKey::Claim(self.claim_path(claim, raw.key.span)?)
            }
            Some(("api_key", field)) if !field.is_empty() => {
                if !has_keys {
                    self.refuse(
                        raw.key.span,
                        "no request has an API key: the policy knows none",
                        "add `api_keys: { file: ... }` to `identity`",
                    );
                }
                CallerKey::ApiKey(field.into())
            }
            Some(("client_certificate", "subject")) => {
                CallerKey::Certificate(CertificateName::Subject)
            }
            Some(("client_certificate", "san")) => {
                CallerKey::Certificate(CertificateName::AlternativeName)
            }
            _ => {
                let message = format!("`{}` does not name a caller", raw.key.value);
                self.note(
                    raw.key.span,
                    message,
                    "write jwt.sub, another claim as jwt.<name>, api_key.id, client_certificate.subject, \
                     client_certificate.san, or client.ip",
                );
                return None;
            }
        };
        if let (false, Some(prefix)) = (matches!(key, CallerKey::Address { .. }), &raw.ipv6_prefix)
        {
            self.refuse(prefix.span, "`ipv6_prefix` needs `key: client.ip`", "remove it");
        }
        let tier = match &raw.tier {
            None => TierSource::Default,
            Some(tier) => self.tier_source(tier, &key, tiers)?,
        };
        Some(Caller { name: raw.name.value.as_str().into(), key, tier })
    }

    fn token_sources(
        &mut self,
        identity: &RawIdentity,
        api_key: Option<HeaderName>,
    ) -> Option<TokenSources> {
        let raw = &identity.token;
        let schemes = match &raw.schemes {
            None => Some(TokenSources::default().schemes),
            Some(raw) => self.schemes(raw),
        };
        let key_schemes = self.key_schemes(identity, schemes.as_deref().unwrap_or_default());
        let header = match &raw.header {
            None => None,
            Some(raw) => Some(self.header_name(raw)?),
        };
        if let (Some(place), true) = (&raw.header, header.is_some() && header == api_key) {
            self.refuse(place.span, "API keys come in this header", "write another one");
        }
        let cookie = match &raw.cookie {
            None => None,
            Some(raw) => Some(self.cookie_name(raw)?),
        };
        let query = raw.query.as_ref().map(|name| name.value.as_str().into());
        if let Some(name) = &raw.query
            && name.value.is_empty()
        {
            self.refuse(name.span, "a parameter has a name", "write access_token");
        }
        let other_schemes = self.keyword_or_default(raw.other_schemes.as_ref())?;
        Some(TokenSources {
            schemes: schemes?,
            key_schemes: key_schemes?,
            header,
            cookie,
            query,
            api_key,
            forward: raw.forward,
            other_schemes,
        })
    }

    /// Schemes of `Authorization`, in the order of the file.
    fn schemes(&mut self, raw: &[Spanned<Choice<Scheme>>]) -> Option<Vec<Scheme>> {
        self.refuse_twice(raw.iter(), "scheme");
        let found: Vec<Scheme> = raw.iter().filter_map(|scheme| self.keyword(scheme)).collect();
        (found.len() == raw.len()).then_some(found)
    }

    /// Those of API keys, beside those of tokens.
    fn key_schemes(&mut self, identity: &RawIdentity, of_tokens: &[Scheme]) -> Option<Vec<Scheme>> {
        let Some(keys) = &identity.api_keys else { return Some(Vec::new()) };
        let found = self.schemes(&keys.value.schemes)?;
        let both = found.iter().zip(&keys.value.schemes).find(|(own, _)| of_tokens.contains(own));
        if let (Some((scheme, place)), Some(_)) = (both, &identity.introspection) {
            let scheme = scheme.keyword();
            self.refuse(
                place.span,
                format!("an opaque token by scheme `{scheme}` may look like an API key"),
                "list the scheme here or in `token: { schemes: ... }`, not in both",
            );
        }
        Some(found)
    }

    fn forwarded(&mut self, raw: &RawForwardClaims) -> Option<ForwardedClaims> {
        let mut headers: Vec<(HeaderName, Box<str>)> = Vec::new();
        for (written, claim) in raw.headers.iter() {
            let name = self.own_header(written)?;
            let Some(("jwt", path)) = claim.value.split_once('.') else {
                let message = format!("`{}` is not a claim", claim.value);
                self.note(claim.span, message, "write jwt.email, or another claim as jwt.<name>");
                return None;
            };
            if headers.iter().any(|(earlier, _)| *earlier == name) {
                self.refuse(written.span, format!("`{name}` appears twice"), "remove one");
            }
            headers.push((name, self.claim_path(path, claim.span)?));
        }
        let payload = match &raw.payload {
            None => None,
            Some(written) => {
                let name = self.own_header(written)?;
                if headers.iter().any(|(earlier, _)| *earlier == name) {
                    self.refuse(written.span, format!("`{name}` holds a claim"), "write another");
                }
                Some(name)
            }
        };
        Some(ForwardedClaims { headers, payload })
    }

    /// The name of a header that means nothing but what the policy says: for a claim, or for a key.
    pub(super) fn own_header(&mut self, raw: &Spanned<String>) -> Option<HeaderName> {
        let name = self.message_header(raw)?;
        let text = name.as_str();
        if TAKEN.contains(&text) || text == "host" || text.starts_with("x-forwarded-") {
            let message = format!("`{name}` says something else already");
            self.refuse(raw.span, message, "write a name of your own, such as x-user-email");
            return None;
        }
        if text.contains('_') {
            let message = "fields with an underscore never get through";
            self.refuse(raw.span, message, "write it with `-`");
            return None;
        }
        Some(name)
    }
}
