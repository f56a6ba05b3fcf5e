"""Attacks on keys that Tollgate fetches: they verify and do nothing else, and made-up key ids
cause no request to the issuer.
"""

import json

from cast import KID, ROUTES, describe
from forge import base64url, hmac_signer, signer, token
from front import SEVERAL, UNAVAILABLE, KeyServer, Plan, bearer, expect, front, serving
from harness import free_port

FLOOD = 300
# The first, and one for the sake of an unknown key.
MOST_FETCHES = 2
# Longer than the run takes.
COOLDOWN = "10m"


def check_published_keys(binary, cast, tally):
    """Keys that are fetched: random key ids cause no fetches, and what was fetched is no secret."""
    secret = b"a secret that somebody published by mistake, as long as it has to be."
    oct_key = {"kty": "oct", "k": base64url(secret.decode()), "kid": "shared", "alg": "HS256"}
    closed = free_port()
    with serving(KeyServer) as publisher:
        documents = {"keys": [cast.published("main"), oct_key, {"kty": "?"}]}
        publisher.documents["/jwks"] = documents
        remote = describe("main") | {
            "jwks_url": f"http://127.0.0.1:{publisher.server_port}/jwks",
            "cooldown": COOLDOWN,
        }
        down = describe("twin") | {"jwks_url": f"http://127.0.0.1:{closed}/jwks", "timeout": "1s"}
        secrets_of_others = describe("hs256") | {"secret_file": "../secret"}
        issuers, files = [remote, down, secrets_of_others], {"secret": cast.secret}
        plan = Plan(issuers, routes=ROUTES, files=files)
        with front(binary, plan, tally) as on:
            on.accepts("published keys: a good token", cast.good(), subject="user-1")
            for number in range(FLOOD):
                header = cast.header() | {"kid": f"random-{number}"}
                on.refuses(f"published keys: key id {number}", cast.signed(header, cast.claims()))
            fetches = len(publisher.seen)
            problems = [] if fetches <= MOST_FETCHES else [f"{fetches} fetches"]
            tally.record(f"{FLOOD} random key ids cause at most {MOST_FETCHES} fetches", problems)
            on.accepts("published keys: a good token after the flood", cast.good())
            check_published_secrets(on, cast, documents, secret)
            check_silent_issuer(on, cast)
            tally.record(
                "who cannot be verified is not asked about",
                expect("fetches since", fetches, len(publisher.seen)),
            )


def check_published_secrets(on, cast, documents, secret):
    """Nothing that was published signs for anybody."""
    for what, used in {
        "the secret among them": secret,
        "the set": json.dumps(documents).encode(),
        "the key": json.dumps(cast.published("main")).encode(),
    }.items():
        for kid in ("shared", KID):
            header = {"alg": "HS256", "typ": "JWT", "kid": kid}
            bad = token(header, cast.claims(), hmac_signer("HS256", used))
            on.refuses(f"published keys: HS256 by {what}, as {kid}", bad)
    for name in ("jku", "x5u"):
        header = cast.header() | {name: f"http://127.0.0.1:{on.port}/jwks"}
        bad = token(header, cast.claims(), signer("ES384", cast.stranger))
        on.refuses(f"published keys: {name} in the header", bad)
    on.refuses("published keys: unknown issuer", cast.signed(cast.header(), cast.claims("p256")))


def check_silent_issuer(on, cast):
    """An issuer whose keys never came: our fault and not the client's; and never a crash
    (CVE-2025-64527)."""
    good = cast.good("twin")
    for path in ("/", "/optional/"):
        on.refuses(f"{path}: an issuer is silent", good, answer=UNAVAILABLE, path=path)
        both = (bearer(good), bearer(good))
        on.refuses(f"{path}: two tokens, issuer silent", *both, answer=SEVERAL, path=path)
        both = (bearer(cast.good()), bearer(good))
        on.refuses(f"{path}: two tokens, one issuer silent", *both, answer=SEVERAL, path=path)
    # Refused without the keys, which are published nowhere.
    bad = token({"alg": "HS256"}, cast.claims("twin"), hmac_signer("HS256", cast.secret))
    on.refuses("a token that names a silent issuer, by HS256", bad)
    on.accepts("a token of another issuer", cast.good())
