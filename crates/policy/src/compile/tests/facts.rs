//! What the access log may tell of a policy's requests, and what it hides.

use super::policy;

/// The facts of a policy with these limits, the hashed ones with a mark.
fn facts(per: &str, private: &str) -> Vec<String> {
    let policy = policy(&format!(
        "limits: {{ core: {{ per: {per}, rate: 9/hour }}, other: {{ per: {per}, rate: 9/day }} }}\n\
         private: [{private}]"
    ));
    let shown = |fact: &crate::Fact| match fact.is_hashed {
        true => format!("{} #", fact.name),
        false => fact.name.to_string(),
    };
    policy.facts.iter().map(shown).collect()
}

#[test]
fn facts_are_what_limits_count_by_each_once() {
    for (per, private, expected) in [
        ("caller", "", &[][..]),
        ("[caller, client.ip, host, path, path.id, method]", "", &[]),
        ("jwt.org", "", &["jwt.org"]),
        ("[jwt.org, header.X-Tenant]", "", &["jwt.org", "header.x-tenant"]),
        ("[jwt.org, header.x-tenant]", "claim.org", &["jwt.org #", "header.x-tenant"]),
        ("[jwt.org, header.x-tenant]", "header.x-tenant", &["jwt.org", "header.x-tenant #"]),
    ] {
        assert_eq!(facts(per, private), expected, "{per} {private}");
    }
}

#[test]
fn whatever_may_be_a_credential_is_hidden_unasked() {
    for (per, expected) in [
        ("header.x-api-key", "header.x-api-key #"),
        ("header.x-auth-user", "header.x-auth-user #"),
        ("header.x-session-id", "header.x-session-id #"),
        ("header.x-csrf-token", "header.x-csrf-token #"),
        ("header.x-tenant", "header.x-tenant"),
        ("cookie.theme", "cookie.theme #"),
        ("jwt.session", "jwt.session"),
    ] {
        assert_eq!(facts(per, ""), [expected], "{per}");
    }
}
