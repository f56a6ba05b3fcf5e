"""Who takes part in the attacks: issuers with a key each, a stranger, and what their tokens say."""

import datetime
import itertools
import json
import secrets
import time
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from forge import hmac_signer, jwk, pem, signer, token
from front import AUDIENCE, Plan

# Each algorithm that a token may name is one that some issuer here allows: a token is refused by
# its issuer's own rules, and not because the algorithm is unknown.
ALGORITHM = {
    "main": "ES384",
    "twin": "ES384",
    "lenient": "ES384",
    "access": "ES384",
    "rsa-pem": "RS256",
    "rsa-jwks": "RS256",
    "p256": "ES256",
    "edwards": "EdDSA",
    "hs256": "HS256",
    "hs384": "HS384",
    "hs512": "HS512",
}
# What both the main issuer and its twin call a key of theirs.
KID = "key-1"
ROUTES = [
    '{ match: { path: "/optional/**" }, auth: optional }',
    '{ match: { path: "/**" }, auth: required }',
]


@dataclass
class Cast:
    """Keys by issuer, and a stranger's."""

    main: object = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))
    # The main issuer's other key: a token without a name of a key may be by either.
    second: object = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))
    twin: object = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))
    stranger: object = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))
    rsa: object = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    p256: object = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    edwards: object = field(default_factory=ed25519.Ed25519PrivateKey.generate)
    # Text: a file with a secret ends with a line break that is no part of it.
    secret: bytes = field(default_factory=lambda: secrets.token_hex(64).encode())
    serial: object = field(default_factory=itertools.count)

    def key(self, who):
        """The private key, or the secret, of an issuer."""
        shared = {"lenient": self.main, "access": self.main}
        shared |= {"rsa-pem": self.rsa, "rsa-jwks": self.rsa}
        shared |= dict.fromkeys(("hs256", "hs384", "hs512"), self.secret)
        return shared.get(who) or getattr(self, who)

    def sign(self, who):
        """What signs as an issuer does."""
        if who.startswith("hs"):
            return hmac_signer(ALGORITHM[who], self.secret)
        return signer(ALGORITHM[who], self.key(who))

    def header(self, who="main"):
        """The header that an issuer writes."""
        typ = "at+jwt" if who == "access" else "JWT"
        return {"alg": ALGORITHM[who], "typ": typ, "kid": KID}

    def claims(self, who="main"):
        """Claims that are good, and those of no other token."""
        now = int(time.time())
        return {
            "iss": issuer(who),
            "aud": AUDIENCE,
            "sub": "user-1",
            "plan": "pro",
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
            "jti": str(next(self.serial)),
        }

    def good(self, who="main"):
        """A token that an issuer signed."""
        return token(self.header(who), self.claims(who), self.sign(who))

    def signed(self, header, payload, who="main"):
        """Whatever an issuer is made to sign."""
        return token(header, payload, self.sign(who))

    def published(self, who):
        """The JWK by which an issuer's tokens are verified."""
        return jwk(self.key(who), kid=KID, use="sig", alg=ALGORITHM[who])

    def plan(self):
        """The policy that all of them are in."""
        entries = {who: describe(who) for who in ALGORITHM}
        for who in ("main", "twin", "lenient", "access", "p256"):
            entries[who]["jwks_file"] = "../main.jwks"
        entries["twin"]["jwks_file"] = "../twin.jwks"
        entries["p256"]["jwks_file"] = "../p256.jwks"
        entries["lenient"]["key_hints"] = "ignore"
        entries["access"]["types"] = ["at+jwt"]
        entries["rsa-pem"]["public_key_file"] = "../rsa.pem"
        entries["rsa-jwks"]["jwks_file"] = "../rsa.jwk"
        entries["edwards"]["public_key_file"] = "../edwards.pem"
        for who in ("hs256", "hs384", "hs512"):
            entries[who]["secret_file"] = "../secret"
        both = [self.published("main"), jwk(self.second, kid="key-2", alg="ES384")]
        files = {
            "main.jwks": {"keys": both},
            "twin.jwks": {"keys": [self.published("twin")]},
            "p256.jwks": {"keys": [self.published("p256")]},
            # A single key without a name, as a tool writes it.
            "rsa.jwk": jwk(self.rsa),
        }
        files = {name: json.dumps(document).encode() for name, document in files.items()}
        files |= {"rsa.pem": pem(self.rsa), "edwards.pem": pem(self.edwards)}
        return Plan(list(entries.values()), routes=ROUTES, files=files | {"secret": self.secret})


def describe(who):
    """What the policy says of an issuer, but for its keys."""
    algorithm = ALGORITHM[who]
    return {
        "name": who,
        "issuer": issuer(who),
        "audience": [AUDIENCE],
        "algorithms": [algorithm],
    }


def issuer(who):
    """The `iss` of an issuer's tokens."""
    return f"https://{who}.test"


def certificate(key):
    """A certificate that a key's owner wrote for himself, in DER."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA384())
    )
    return made.public_bytes(serialization.Encoding.DER)
