//! Whose tokens a policy takes.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use serde_json::{Value, json};
use tollgate_clock::{Clock, Timestamp};
use tollgate_identity::{
    Algorithm, AssumedToken, Auth, Claims, Client, CurrentKeys, Identifier, Identity,
    IdentityError, IssuerClaim, KeyRing, NameError, PublishedKeys, SigningKey, TokenError,
};
use tollgate_limit::{Hashing, KeyHasher};
use tollgate_yaml::warning::Rule;

use super::*;

/// A policy with these issuers, and what else `identity` has.
fn with_issuers(issuers: &str, more: &str) -> Result<Policy, Vec<Problem>> {
    with_auth(issuers, more, &["required"])
}

/// The same with a route for each `auth`.
fn with_auth(issuers: &str, more: &str, auth: &[&str]) -> Result<Policy, Vec<Problem>> {
    let route = |(at, auth)| format!("  - {{ match: {{ path: \"/{at}/**\" }}, auth: {auth} }}\n");
    let routes: String = auth.iter().enumerate().map(route).collect();
    try_load(&format!(
        "version: 1\n\
         upstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
         identity:\n  jwt: [{issuers}]\n  callers: [{{ name: user, key: jwt.user_id }}]\n{more}\
         routes:\n{routes}"
    ))
}

fn refused(issuers: &str, more: &str) -> String {
    with_issuers(issuers, more).map(|_| ()).unwrap_err().remove(0).to_string()
}

const KEY: &str = "algorithms: [HS256], secret_env: SECRET";

#[test]
fn issuer_may_have_tokens_without_iss() {
    let policy = with_issuers(&format!("{{ name: django, issuer: none, {KEY} }}"), "").unwrap();
    let issuer = &policy.identity.issuers[0];
    assert_eq!((issuer.claim.clone(), &*issuer.issuer), (IssuerClaim::Absent, "none:django"));
    let discover = "{ name: django, issuer: none, discover: true }";
    assert!(refused(discover, "").contains("nothing to discover"));
}

#[test]
fn issuers_without_iss_that_a_token_cannot_tell_apart_are_refused() {
    let issuers = |one: &str, other: &str| {
        format!(
            "{{ name: a, issuer: none, {KEY}, {one} }}, {{ name: b, issuer: none, {KEY}, {other} }}"
        )
    };
    let places = "  token: { cookie: session }\n";
    for (one, other) in [("", ""), ("from: [authorization, cookie]", "from: [cookie]")] {
        let message = refused(&issuers(one, other), places);
        assert!(message.contains("a token without `iss` may be one of `a` too"), "{message}");
    }
    let apart = issuers("from: [authorization]", "from: [cookie]");
    assert!(with_issuers(&apart, places).is_ok());
    let message = refused(&apart, "");
    assert!(message.contains("no token is read from a cookie"), "{message}");
}

#[test]
fn issuer_of_tokens_without_iss_has_a_name() {
    let message = refused(&format!("{{ issuer: none, {KEY} }}"), "");
    assert!(message.contains("whose tokens have no `iss` needs a name"), "{message}");
    assert!(message.contains("add a `name`"), "{message}");
}

/// Its own tokens have no `iss`, so that the name stands there for the issuer.
#[test]
fn test_of_a_policy_says_by_name_that_a_token_has_no_iss() {
    let own = |name: &str, place: &str| {
        format!("{{ name: {name}, issuer: none, {KEY}, from: [{place}] }}")
    };
    let issuers = format!("{}, {}", own("django", "authorization"), own("rails", "cookie"));
    let places = "  token: { cookie: session }\n";
    let test = |claims: &str| {
        format!("{places}tests:\n  - {{ given: {{ path: /0/a, jwt: {claims} }}, expect: {{}} }}\n")
    };
    let policy = with_issuers(&issuers, &test("{ iss: rails, user_id: 42 }")).unwrap();
    let token = policy.tests[0].given.token.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((token.issuer, token.claims.get("iss")), (1, None));
    let message = refused(&issuers, &test("{ iss: \"https://id.example.com/\", user_id: 42 }"));
    for part in ["no issuer of the policy is", "one of: django, rails;", "have no `iss`"] {
        assert!(message.contains(part), "{message}");
    }
}

fn identifier() -> Identifier {
    let hashing = Hashing::Fixed(KeyHasher::new([7; 16]));
    Identifier::new(1 << 20, hashing, KeyRing::offline(Clock::System))
}

/// Who sends a request with these claims to the route at a position, by one identifier.
fn identify<'p>(
    identifier: &Identifier,
    policy: &'p Policy,
    route: usize,
    claims: &Value,
) -> Result<Identity<'p>, IdentityError> {
    let secret = b"a secret that is long enough for it";
    let key = SigningKey::from_secret(secret, Algorithm::HS256).unwrap();
    let token = key.sign(None, claims.as_object().unwrap()).unwrap();
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    let address = [127, 0, 0, 1].into();
    let client = Client { address, certificate: None, headers: &headers, query: None };
    let published = PublishedKeys::default();
    let keys = CurrentKeys { published: &published, now: Timestamp::from_secs(1_700_000_000) };
    let auth = &policy.routes[route].auth;
    let found = pin!(identifier.identify(&policy.identity, auth, client, keys, || Some(())));
    match found.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => found,
        Poll::Pending => panic!("the keys are here"),
    }
}

/// The caller's name and hash.
fn caller(identity: &Identity<'_>, policy: &Policy) -> (String, u128) {
    let caller = identity.caller.as_ref().unwrap();
    (caller.name(&policy.identity).to_string(), caller.hash)
}

const TENANTS: &str = "issuer: \"https://login.example/{tid}/v2.0\"";

fn of_tenant(tenant: &str) -> Value {
    let iss = format!("https://login.example/{tenant}/v2.0");
    json!({ "iss": iss, "tid": tenant, "user_id": 42, "exp": 1_700_000_300 })
}

#[test]
fn callers_of_two_tenants_with_one_name_are_two_callers() {
    let exempt = "exempt: [a/user:42]\n";
    let policy = with_issuers(&format!("{{ {TENANTS}, tenants: any, {KEY} }}"), exempt).unwrap();
    let identifier = identifier();
    let mut hashes = Vec::new();
    for tenant in ["a", "b"] {
        let identity = identify(&identifier, &policy, 0, &of_tenant(tenant)).unwrap();
        let (name, hash) = caller(&identity, &policy);
        assert_eq!(name, format!("{tenant}/user:42"));
        let found = identifier.by_name(&policy.identity, &name).unwrap();
        assert_eq!(found.caller.hash, hash, "{name}");
        assert_eq!(policy.exempt.contains(&identity), tenant == "a");
        hashes.push(hash);
    }
    assert_ne!(hashes[0], hashes[1]);
    let unsaid = identifier.by_name(&policy.identity, "user:42").unwrap_err();
    assert!(matches!(unsaid, NameError::WhoseIsIt { .. }), "{unsaid}");
}

#[test]
fn tenants_of_an_issuer_are_any_or_listed() {
    let issuer = |tenants: &str| format!("{{ {TENANTS}, {KEY}, tenants: {tenants} }}");
    for listed in ["[a]", "a", "[a, c]"] {
        let listed = with_issuers(&issuer(listed), "").unwrap();
        let identifier = identifier();
        assert!(identify(&identifier, &listed, 0, &of_tenant("a")).is_ok());
        let other = identify(&identifier, &listed, 0, &of_tenant("b")).err().unwrap().to_string();
        assert!(other.contains("expected a tenant of \"a\"") && other.ends_with("found \"b\""));
    }
    for (issuers, more, expected) in [
        (issuer("[]"), "", "a list of no tenants"),
        (issuer("{}"), "", "expected text, found a mapping"),
        (issuer("a/b"), "", "`a/b` is not the name of a tenant"),
        (issuer("Any"), "", "write `any` for all tenants"),
        (issuer("all"), "", "write `any` for all tenants"),
        (issuer("[a/b]"), "", "`a/b` is not the name of a tenant"),
        (format!("{{ issuer: me, {KEY}, tenants: any }}"), "", "needs one claim in braces"),
        (issuer("any"), "exempt: [user:42]\n", "may be a caller of any tenant"),
        (format!("{{ {TENANTS}, tenants: any, discover: true }}"), "", "has nothing to discover"),
        (
            format!(
                "{}, {{ issuer: \"https://login.example/{{org}}/v2.0\", {KEY}, tenants: any }}",
                issuer("any")
            ),
            "",
            "an `iss` may be one of",
        ),
    ] {
        let message = refused(&issuers, more);
        assert!(message.contains(expected), "{message}");
    }
}

/// Or a test of a policy would say what no request sees.
#[test]
fn assumed_token_is_of_the_issuer_that_would_take_it() {
    let own = "{ name: own, issuer: \"https://login.example/a/v2.0\", algorithms: [HS256], secret_env: SECRET }";
    let policy =
        with_issuers(&format!("{{ name: theirs, {TENANTS}, tenants: any, {KEY} }}, {own}"), "");
    let policy = policy.unwrap();
    let token = assumed(&policy, json!({ "iss": iss_of("a"), "user_id": "42" })).unwrap();
    assert_eq!((token.issuer, token.tenant), (1, None));
    let given = json!({ "iss": iss_of("b"), "tid": "b", "user_id": "42" });
    let token = assumed(&policy, given).unwrap();
    assert_eq!((token.issuer, token.tenant.unwrap().name.as_ref()), (0, "b"));
    let error = assumed(&policy, json!({ "iss": iss_of("b"), "tid": "c" })).unwrap_err();
    assert_eq!(error.error, TokenError::UnknownIssuer);
}

fn assumed(policy: &Policy, claims: Value) -> AssumedToken {
    let Value::Object(claims) = claims else { unreachable!() };
    policy.identity.assume_token(claims).unwrap()
}

fn iss_of(tenant: &str) -> String {
    format!("https://login.example/{tenant}/v2.0")
}

/// Or a policy that reads the tenant from a claim that no token has would pass its tests.
#[test]
fn tenant_of_an_assumed_token_is_not_made_up() {
    let issuer = |tenants: &str| format!("{{ {TENANTS}, {KEY}, tenants: {tenants} }}");
    let lacking = "token lacks a claim that the policy requires: \"tid\"";
    for (tenants, claims, expected) in [
        ("any", json!({ "tid": "a" }), Ok("a")),
        ("[a]", json!({ "tid": "a" }), Ok("a")),
        ("any", json!({ "iss": iss_of("a"), "tid": "a" }), Ok("a")),
        ("any", json!({}), Err(lacking)),
        ("[a]", json!({}), Err(lacking)),
        ("any", json!({ "iss": iss_of("a") }), Err(lacking)),
        ("[a]", json!({ "tid": "b" }), Err("expected a tenant of \"a\", found \"b\"")),
        ("any", json!({ "tid": "b c" }), Err("found \"https://login.example/b c/v2.0\"")),
    ] {
        let policy = with_issuers(&issuer(tenants), "").unwrap();
        match (assumed(&policy, claims.clone()), expected) {
            (Ok(token), Ok(tenant)) => assert_eq!(&*token.tenant.unwrap().name, tenant),
            (Err(refusal), Err(expected)) => {
                assert!(refusal.to_string().contains(expected), "{claims}: {refusal}");
            }
            (found, _) => panic!("{claims}: {found:?}"),
        }
    }
}

#[test]
fn callers_of_a_tenant_that_there_is_not_are_refused() {
    let issuer = |tenants: &str| format!("{{ {TENANTS}, {KEY}, tenants: {tenants} }}");
    for (tenants, name, is_known) in [
        ("[acme]", "acme/user:42", true),
        ("[acme]", "Acme/user:42", false),
        ("acme", "acme/user:42", true),
        ("acme", "Acme/user:42", false),
        ("any", "Acme/user:42", true),
        ("any", "a b/user:42", false),
    ] {
        let found = with_issuers(&issuer(tenants), &format!("exempt: [\"{name}\"]\n"));
        let message = found.err().map(|mut problems| problems.remove(0).to_string());
        let is_refused = message.as_ref().is_some_and(|text| text.contains("is no tenant of its"));
        assert_eq!(is_refused, !is_known, "{tenants} {name}: {message:?}");
    }
}

#[test]
fn braces_that_mean_nothing_are_a_warning() {
    for (issuer, expected) in [
        ("issuer: me", None),
        (
            "issuer: \"https://login.example/{tenantid}/v2.0\"",
            Some("stands for the claim `tenantid`, which Entra's tokens call `tid`"),
        ),
        ("issuer: \"a{b}\"", Some("stands for the claim `b`")),
        ("issuer: \"a{b\"", Some("a brace that is taken as it is written")),
        ("issuer: \"a/{b}\", tenants: any", None),
    ] {
        let policy = with_issuers(&format!("{{ {issuer}, {KEY} }}"), "").unwrap();
        let idle = policy.warnings.iter().filter(|own| own.rule == Rule::IdleBrace);
        let warnings: Vec<String> = idle.map(ToString::to_string).collect();
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{issuer}: {warnings:?}");
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.contains(expected), "{warning}");
        }
    }
}

#[test]
fn route_takes_tokens_for_its_audience_whichever_route_they_were_verified_for() {
    let issuer = format!("{{ name: id, issuer: me, {KEY}, audience: [products, reviews] }}");
    let auth = [
        "{ required: [id], audience: [products] }",
        "{ required: [id], audience: [reviews] }",
        "{ audience: [reviews, products] }",
        "required",
    ];
    let policy = with_auth(&issuer, "", &auth).unwrap();
    for (audience, expected) in [
        (json!("products"), [true, false, true, true]),
        (json!("reviews"), [false, true, true, true]),
        (json!(["reviews", "products"]), [true, true, true, true]),
        (json!("other"), [false, false, false, false]),
    ] {
        let claims = json!({ "iss": "me", "aud": audience, "user_id": 42, "exp": 1_700_000_300 });
        // One identifier, so that the cache has the token of the routes before.
        let identifier = identifier();
        for order in [[0, 1, 2, 3], [3, 2, 1, 0]] {
            for route in order {
                let found = identify(&identifier, &policy, route, &claims);
                assert_eq!(found.is_ok(), expected[route], "{claims} at {route}");
            }
        }
    }
    let claims = json!({ "iss": "me", "aud": "products", "user_id": 42, "exp": 1_700_000_300 });
    let refused = identify(&identifier(), &policy, 1, &claims).err().unwrap().to_string();
    let expected = "token is for another audience: expected \"reviews\", found \"products\"";
    assert_eq!(refused, expected);
}

#[test]
fn auth_of_a_route_that_no_token_meets_is_refused() {
    let issuer = format!("{{ name: id, issuer: me, {KEY}, audience: [products] }}");
    for (auth, expected) in [
        ("{ required: [id], audience: [reviews] }", "no token is for this audience"),
        ("{ audience: [reviews] }", "no token is for this audience"),
        ("{ required: [id], optional: [id] }", "either required or optional"),
        ("{ required: [], audience: [products] }", "a list of no issuers"),
        ("{ required: [other] }", "no issuer is called `other`"),
        ("{}", "not a valid `auth`"),
    ] {
        let problems = with_auth(&issuer, "", &[auth]).map(|_| ()).unwrap_err();
        let message = problems[0].to_string();
        assert!(message.contains(expected), "{auth}: {message}");
    }
    let claims = "{ required: [id], required_claims: { azp: [web, app] } }";
    let policy = with_auth(&issuer, "", &[claims]).unwrap();
    let Auth::Required(accepted) = &policy.routes[0].auth else { panic!("required") };
    let met = |claims: Value| {
        accepted.claims.unmet_by(&Claims::parse(claims.to_string().as_bytes()).unwrap()).is_none()
    };
    assert!(met(json!({ "azp": "app" })) && !met(json!({ "azp": "other" })) && !met(json!({})));
}

#[test]
fn subjects_of_two_tenants_that_an_upstream_may_take_for_one_are_a_warning() {
    let shared = |tenants: &str, more: &str| {
        let policy = with_issuers(&format!("{{ {tenants}, {KEY} }}"), more).unwrap();
        policy.warnings.iter().any(|warning| warning.rule == Rule::SharedSubject)
    };
    let tenants = format!("{TENANTS}, tenants: any");
    assert!(shared(&tenants, ""));
    assert!(!shared(&tenants, "  shared_subjects: true\n"));
    assert!(!shared("issuer: me", ""));
}

#[test]
fn claim_that_no_token_of_a_known_provider_has_is_a_warning() {
    for (issuer, tenants, is_warned) in [
        ("https://login.microsoftonline.com/{tenantid}/v2.0", ", tenants: any", true),
        ("https://login.microsoftonline.com/{tenant}/v2.0", ", tenants: [a]", true),
        ("https://sts.windows.net/{tenantid}/", ", tenants: any", true),
        ("https://login.microsoftonline.com/{tid}/v2.0", ", tenants: any", false),
        ("https://sts.windows.net/{tid}/", ", tenants: any", false),
        ("https://login.example/{tenantid}/v2.0", ", tenants: any", false),
        ("https://login.example/login.microsoftonline.com/{org}", ", tenants: any", false),
        // It is not the name of a claim.
        ("https://login.microsoftonline.com/{tenantid}/v2.0", "", false),
    ] {
        let entry = format!("{{ issuer: \"{issuer}\"{tenants}, {KEY} }}");
        let policy = with_issuers(&entry, "  shared_subjects: true\n").unwrap();
        let of_claim = policy.warnings.iter().filter(|own| own.rule == Rule::TenantClaim);
        let warnings: Vec<String> = of_claim.map(ToString::to_string).collect();
        assert_eq!(!warnings.is_empty(), is_warned, "{issuer}{tenants}: {warnings:?}");
        for warning in warnings {
            assert!(warning.contains("have no claim `tenant"), "{warning}");
            assert!(
                warning.contains("write \"https://") && warning.contains("/{tid}"),
                "{warning}"
            );
        }
    }
}
