"""Tokens as identity providers write them, with all the claims that the policy does not use.

The formats are the providers' own; the keys are not.
"""

import time
from dataclasses import dataclass, field

from joserfc import jwk, jwt

KEY = jwk.RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "2026-11"})
# In the set too, as after a rotation.
OLD_KEY = jwk.RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "2026-10"})
TENANT = "72f988bf-86f1-41af-91ab-2d7cd011db47"
THUMBPRINT = "nOo3ZDrODXEK1jKWhXslHR_KXEg"


@dataclass
class Provider:
    """A provider's token, and what is to come of it."""

    # What the policy says of it, but for its keys.
    settings: dict
    claims: dict
    subject: str
    tier: str = "free"
    # A scope that the token has, if its format has scopes.
    scope: str | None = None
    header: dict = field(default_factory=dict)
    # Tokens of the same provider that are for something else: changes of the claims, by name.
    others: dict = field(default_factory=dict)
    # Changes of the header that make another kind of token.
    other_headers: dict = field(default_factory=dict)

    def token(self, claims=None, header=None):
        """Signed by the provider's key."""
        members = {"alg": "RS256", "typ": "JWT", "kid": KEY.kid} | self.header | (header or {})
        members = {name: value for name, value in members.items() if value is not None}
        now = int(time.time())
        payload = {"iss": self.settings["issuer"], "iat": now, "exp": now + 3600} | self.claims
        payload |= claims or {}
        payload = {name: value for name, value in payload.items() if value is not None}
        return jwt.encode(members, payload, KEY)


RFC_9068 = Provider(
    settings={
        "issuer": "https://as.example.com/",
        "audience": ["https://rs.example.com/"],
        "types": ["at+jwt"],
        # What section 2.2 requires, beside what is always checked.
        "required_claims": {"client_id": None, "iat": None, "jti": None},
    },
    header={"typ": "at+JWT"},
    claims={
        "aud": "https://rs.example.com/",
        "sub": "5ba552d67",
        "client_id": "s6BhdRkqt3",
        "jti": "dbe39bf3a3ba4238a513f51d6e1691c4",
        "scope": "openid profile reademail",
        "auth_time": 1618354090,
        "acr": "urn:mace:incommon:iap:silver",
        "amr": ["pwd", "otp"],
        "roles": ["editor"],
        "groups": ["staff", "eu"],
        "entitlements": ["reports"],
        "plan": "pro",
    },
    subject="5ba552d67",
    tier="pro",
    scope="reademail",
    other_headers={
        "an ID token": {"typ": "JWT"},
        "a logout token": {"typ": "logout+jwt"},
        "a token without a type": {"typ": None},
    },
    others={
        "a token without client_id": {"client_id": None},
        "a token without jti": {"jti": None},
        "a token without iat": {"iat": None},
        "a token without exp": {"exp": None},
        "a token without sub": {"sub": None},
        "a token without aud": {"aud": None},
        "a token for the client itself": {"aud": "s6BhdRkqt3"},
    },
)

KEYCLOAK = Provider(
    settings={
        "issuer": "https://sso.example.com/realms/acme",
        "audience": ["orders-api"],
        # Its ID tokens and refresh tokens have the same header.
        "required_claims": {"typ": "Bearer", "realm_access.roles": ["customer", "admin"]},
        "claim_names": {"plan": "billing.plan"},
    },
    claims={
        "jti": "onrtac:0b9e8f1c-5a1e-4c39-8d43-0ad1f6ef3d9e",
        "aud": ["orders-api", "account"],
        "sub": "f2a1ed8a-bf9d-4c2d-9a53-2a3f0a1d1c11",
        "typ": "Bearer",
        "azp": "web-app",
        "sid": "8d8f3ea6-3d17-4c0d-8a3a-6c3b38f5c2f5",
        "acr": "1",
        "allowed-origins": ["https://app.example.com"],
        "realm_access": {"roles": ["default-roles-acme", "offline_access", "customer"]},
        "resource_access": {"account": {"roles": ["manage-account", "view-profile"]}},
        "scope": "openid email profile orders:read",
        "email_verified": True,
        "billing": {"plan": "pro"},
        "preferred_username": "ada",
        "email": "ada@example.com",
    },
    subject="f2a1ed8a-bf9d-4c2d-9a53-2a3f0a1d1c11",
    tier="pro",
    scope="orders:read",
    others={
        "an ID token": {"typ": "ID", "aud": "orders-api"},
        "a refresh token": {"typ": "Refresh"},
        "a token without a role": {"realm_access": {"roles": ["offline_access"]}},
        "a token without roles": {"realm_access": None},
        "a token for the account console": {"aud": "account"},
        "a token of another realm": {"iss": "https://sso.example.com/realms/other"},
    },
)

AUTH0 = Provider(
    settings={
        "issuer": "https://acme.eu.auth0.com/",
        "audience": ["https://orders.example.com"],
        "claim_names": {"plan": "https://orders.example.com/plan"},
    },
    claims={
        "https://orders.example.com/plan": "pro",
        "sub": "auth0|5f7c8ec7c33c6c004bbafe82",
        "aud": ["https://orders.example.com", "https://acme.eu.auth0.com/userinfo"],
        "azp": "my_client_id",
        "scope": "openid profile read:orders",
        "permissions": ["read:orders", "write:orders"],
    },
    subject="auth0|5f7c8ec7c33c6c004bbafe82",
    tier="pro",
    scope="read:orders",
    others={
        "an ID token": {"aud": "my_client_id", "nonce": "n"},
        "a token for another API": {"aud": "https://other.example.com"},
        "an issuer without its slash": {"iss": "https://acme.eu.auth0.com"},
    },
)

# The same tenant, whose scopes are permissions of a user's roles.
AUTH0_PERMISSIONS = Provider(
    settings=AUTH0.settings
    | {"issuer": "https://login.acme.example/", "claim_names": {"scope": "permissions"}},
    claims=AUTH0.claims | {"plan": "pro", "scope": "openid"},
    subject=AUTH0.subject,
    tier="pro",
    scope="write:orders",
)

ENTRA_V1 = Provider(
    settings={
        "issuer": f"https://sts.windows.net/{TENANT}/",
        # What the client has asked for: the identifier or the client id.
        "audience": [
            "api://6e74172b-be56-4843-9ff4-e66a39bb12e3",
            "6e74172b-be56-4843-9ff4-e66a39bb12e3",
        ],
        "key_hints": "ignore",
        "required_claims": {"tid": TENANT, "ver": "1.0"},
        "claim_names": {"sub": "oid", "plan": "extn.plan"},
    },
    header={"x5t": THUMBPRINT},
    claims={
        "aud": "api://6e74172b-be56-4843-9ff4-e66a39bb12e3",
        "nbf": int(time.time()) - 300,
        "acr": "1",
        "aio": "AXQAi/8IAAAA",
        "amr": ["pwd", "mfa"],
        "appid": "75dbe77f-10a3-4e59-85fd-8c127544f17c",
        "appidacr": "0",
        "extn.plan": "pro",
        "family_name": "Lovelace",
        "ipaddr": "203.0.113.77",
        "name": "Ada Lovelace",
        "oid": "690222be-ff1a-4d56-abd1-7e4f7d38e474",
        "rh": "0.ATcAE5ZQ",
        "scp": "Orders.Read user_impersonation",
        "sub": "HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ",
        "tid": TENANT,
        "unique_name": "ada@contoso.com",
        "upn": "ada@contoso.com",
        "uti": "fqiBqXLPj0eQa82S-IYFAA",
        "ver": "1.0",
    },
    subject="690222be-ff1a-4d56-abd1-7e4f7d38e474",
    tier="pro",
    scope="Orders.Read",
    others={
        "a token of another tenant": {"tid": "9122040d-6c67-4c5b-b112-36a304b66dad"},
        "a token without oid": {"oid": None},
        "a token for Graph": {"aud": "00000003-0000-0000-c000-000000000000"},
        "a token of the other version": {"ver": "2.0"},
    },
)

ENTRA_V2 = Provider(
    settings={
        "issuer": f"https://login.microsoftonline.com/{TENANT}/v2.0",
        "audience": ["6e74172b-be56-4843-9ff4-e66a39bb12e3"],
        "key_hints": "ignore",
        "required_claims": {"tid": TENANT, "roles": ["Orders.Writer", "Orders.Admin"]},
        "claim_names": {"sub": "oid"},
    },
    header={"x5t": THUMBPRINT},
    claims={
        "aud": "6e74172b-be56-4843-9ff4-e66a39bb12e3",
        "nbf": int(time.time()) - 300,
        "aio": "AXQAi/8TAAAA",
        "azp": "75dbe77f-10a3-4e59-85fd-8c127544f17c",
        "azpacr": "1",
        "name": "Ada Lovelace",
        "oid": "690222be-ff1a-4d56-abd1-7e4f7d38e474",
        "preferred_username": "ada@contoso.com",
        "rh": "0.ATcAE5ZQ",
        "roles": ["Orders.Writer"],
        "scp": "Orders.Read Orders.Write",
        "sub": "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ",
        "tid": TENANT,
        "uti": "fqiBqXLPj0eQa82S-IYFAA",
        "ver": "2.0",
    },
    subject="690222be-ff1a-4d56-abd1-7e4f7d38e474",
    scope="Orders.Write",
    others={
        "a token of an application without a role": {"scp": None, "roles": ["Other.Role"]},
        "a token of a user without a role": {"roles": None},
        "a token of another tenant": {"tid": "9122040d-6c67-4c5b-b112-36a304b66dad"},
    },
)

OKTA = Provider(
    settings={
        "issuer": "https://acme.okta.com/oauth2/default",
        "audience": ["api://default"],
        "required_claims": {"cid": ["0oa1h2v5wRsIiTzSF0g7", "0oa2"], "ver": 1},
        "claim_names": {"sub": "uid"},
    },
    header={"typ": None},
    claims={
        "ver": 1,
        "jti": "AT.0mP4JKAZX1iACIT4vbEDF7LpvDVjxypPMf0D7uX39RE",
        "aud": "api://default",
        "cid": "0oa1h2v5wRsIiTzSF0g7",
        "uid": "00ujmkLgagxeRrAg20g3",
        "scp": ["openid", "offline_access", "orders:read"],
        "auth_time": 1467144100,
        "sub": "ada@example.com",
        "plan": "pro",
    },
    subject="00ujmkLgagxeRrAg20g3",
    tier="pro",
    scope="orders:read",
    others={
        "an ID token": {"aud": "0oa1h2v5wRsIiTzSF0g7", "cid": None},
        "a token of another client": {"cid": "0oa9"},
        "a version that is text": {"ver": "1"},
    },
)

COGNITO = Provider(
    settings={
        "issuer": "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Ab12Cd34E",
        # Its access tokens have no `aud`.
        "required_claims": {"token_use": "access", "client_id": ["1example23456789"]},
    },
    header={"typ": None},
    claims={
        "sub": "aaaaaaaa-bbbb-cccc-dddd-example1",
        "device_key": "eu-central-1_a1b2c3d4",
        "cognito:groups": ["customers"],
        "version": 2,
        "client_id": "1example23456789",
        "origin_jti": "aaaaaaaa-1111",
        "event_id": "64f513be-32db-42b0-b78e-b02127b4f463",
        "token_use": "access",
        "scope": "aws.cognito.signin.user.admin orders/read",
        "auth_time": 1676312777,
        "jti": "aaaaaaaa-2222",
        "username": "ada",
        "plan": "pro",
    },
    subject="aaaaaaaa-bbbb-cccc-dddd-example1",
    tier="pro",
    scope="orders/read",
    others={
        "an ID token": {"token_use": "id", "client_id": None, "aud": "1example23456789"},
        "a token of another client": {"client_id": "2example"},
        "a token of another pool": {
            "iss": "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Other"
        },
    },
)

GOOGLE = Provider(
    settings={
        "issuer": "https://accounts.google.com",
        "audience": ["407408718192.apps.googleusercontent.com"],
        "required_claims": {"hd": ["example.com"], "email_verified": True},
    },
    claims={
        "azp": "407408718192.apps.googleusercontent.com",
        "aud": "407408718192.apps.googleusercontent.com",
        "sub": "110169484474386276334",
        "hd": "example.com",
        "email": "ada@example.com",
        "email_verified": True,
        "at_hash": "HK6E_P6Dh8Y93mRNtsDB1Q",
        "name": "Ada Lovelace",
        "given_name": "Ada",
        "locale": "en",
    },
    subject="110169484474386276334",
    others={
        "a private account": {"hd": None},
        "another domain": {"hd": "example.org"},
        "an email that is not verified": {"email_verified": False},
        "an email verified by a text": {"email_verified": "true"},
        "the issuer's old name": {"iss": "accounts.google.com"},
        "a token for another app": {"aud": "1.apps.googleusercontent.com"},
    },
)

FIREBASE = Provider(
    settings={
        "issuer": "https://securetoken.google.com/acme-prod",
        "audience": ["acme-prod"],
    },
    claims={
        "aud": "acme-prod",
        "auth_time": 1618354090,
        "user_id": "ZQ1Uc1yGbKMlT0HJHKpxdq7mFDz1",
        "sub": "ZQ1Uc1yGbKMlT0HJHKpxdq7mFDz1",
        "email": "ada@example.com",
        "email_verified": True,
        "plan": "pro",
        "firebase": {
            "identities": {"email": ["ada@example.com"]},
            "sign_in_provider": "password",
            "tenant": "acme-en2vw",
        },
    },
    subject="ZQ1Uc1yGbKMlT0HJHKpxdq7mFDz1",
    tier="pro",
    others={
        "a token of another project": {
            "iss": "https://securetoken.google.com/other",
            "aud": "other",
        },
        "a session cookie": {"iss": "https://session.firebase.google.com/acme-prod"},
    },
)

SUPABASE = Provider(
    settings={
        "issuer": "https://abcdefghijkl.supabase.co/auth/v1",
        "audience": ["authenticated"],
        "required_claims": {"is_anonymous": False},
        "claim_names": {"plan": "app_metadata.plan"},
    },
    claims={
        "aud": "authenticated",
        "sub": "123e4567-e89b-12d3-a456-426614174000",
        "email": "ada@example.com",
        "phone": "",
        "app_metadata": {"provider": "email", "providers": ["email"], "plan": "pro"},
        "user_metadata": {"name": "Ada Lovelace", "plan": "private"},
        "role": "authenticated",
        "aal": "aal1",
        "amr": [{"method": "password", "timestamp": 1640991600}],
        "session_id": "123e4567-e89b-12d3-a456-426614174001",
        "is_anonymous": False,
    },
    subject="123e4567-e89b-12d3-a456-426614174000",
    tier="pro",
    others={
        "a user who signed in anonymously": {"is_anonymous": True},
        "a token for an app of others": {"aud": "https://app.example.org"},
        "the key for anonymous access": {"iss": "supabase", "aud": None, "sub": None, "role": "anon"},
    },
)

GITHUB_ACTIONS = Provider(
    settings={
        "issuer": "https://token.actions.githubusercontent.com",
        "audience": ["https://deploy.example.com"],
        "key_hints": "ignore",
        "max_lifetime": "2h",
        "required_claims": {
            "repository_owner": "octo-org",
            "ref": ["refs/heads/main", "refs/heads/release"],
            "runner_environment": "github-hosted",
        },
        "claim_names": {"sub": "repository", "plan": "repository_visibility"},
    },
    header={"x5t": THUMBPRINT},
    claims={
        "jti": "6f4762ed-0758-4ccb-808d-ee3af5d723a8",
        "sub": "repo:octo-org/octo-repo:environment:prod",
        "aud": "https://deploy.example.com",
        "ref": "refs/heads/main",
        "sha": "755801bce629edef25b1b0a7c1ba4f2d1a6a0ac0",
        "repository": "octo-org/octo-repo",
        "repository_owner": "octo-org",
        "repository_owner_id": "65",
        "repository_visibility": "private",
        "repository_id": "74",
        "actor": "octocat",
        "actor_id": "12",
        "run_id": "1234567890",
        "run_attempt": "2",
        "workflow": "deploy",
        "workflow_ref": "octo-org/octo-repo/.github/workflows/deploy.yml@refs/heads/main",
        "head_ref": "",
        "base_ref": "",
        "event_name": "workflow_dispatch",
        "ref_type": "branch",
        "environment": "prod",
        "runner_environment": "github-hosted",
        "nbf": int(time.time()) - 300,
    },
    subject="octo-org/octo-repo",
    tier="private",
    others={
        "another organisation": {"repository_owner": "evil-org"},
        "another branch": {"ref": "refs/heads/main2"},
        "a pull request": {"ref": "refs/pull/1/merge", "event_name": "pull_request"},
        "a runner of somebody's own": {"runner_environment": "self-hosted"},
        "a token that lives for a day": {"exp": int(time.time()) + 86_400},
    },
)

PROVIDERS = {
    "RFC 9068": RFC_9068,
    "Keycloak": KEYCLOAK,
    "Auth0": AUTH0,
    "Auth0 with permissions": AUTH0_PERMISSIONS,
    "Entra ID v1": ENTRA_V1,
    "Entra ID v2": ENTRA_V2,
    "Okta": OKTA,
    "Cognito": COGNITO,
    "Google": GOOGLE,
    "Firebase": FIREBASE,
    "Supabase": SUPABASE,
    "GitHub Actions": GITHUB_ACTIONS,
}
