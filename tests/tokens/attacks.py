"""Every attack on a verifier of tokens that is known, from outside.

Each must be answered with 401 and one of a few fixed texts, reach neither the API nor the listener
that its links name, and leave the proxy as it was: before and after each group a good token gets
through. The tokens are in matrix.py and forms.py, requests in places.py and published.py.
"""

import base64
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import forms
import matrix
from cast import ALGORITHM, KID, Cast, certificate, issuer
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from forge import jwk, pem, with_member
from front import KeyServer, Plan, bearer, expect, front, serving
from harness import Tally, binary_under_test
from places import check_credentials, check_heads, check_places
from published import check_published_keys

BAD_CONFIGURATION = 64


def attack(on, cast, name, attempts):
    """Sends a group of tokens, each to a route that needs one and to one where it is optional."""
    attempts = list(attempts)
    print(f"{name}: {len(attempts)} tokens")
    on.accepts(f"{name}: a good token before", cast.good(), subject="user-1", tier="pro")
    for what, bad in attempts:
        on.refuses(f"{name}: {what}", latin(bad))
        on.refuses(f"{name}: {what}, where it is optional", latin(bad), path="/optional/")
    on.accepts(f"{name}: a good token after", cast.good(), subject="user-1", tier="pro")


def latin(text):
    """UTF-8 as a header's value takes it."""
    return text.encode().decode("latin-1")


def check_matrix(binary, cast, tally):
    """All groups on one proxy, with a listener that notices if a link is followed."""
    with serving(KeyServer) as trap, front(binary, cast.plan(), tally) as on:
        # A fetch would find what it needs.
        own = {"keys": [jwk(cast.stranger, kid=KID, alg="ES384")]}
        trap.documents |= {path: own for path in ("/", "/jwks", "/x5u")}
        chain = base64.b64encode(certificate(cast.stranger)).decode()
        for who in ALGORITHM:
            on.accepts(f"a token of {who}", cast.good(who), subject="user-1", tier="pro")
        check_good_variants(on, cast)
        for what, good in matrix.hints_to_ignore(cast, trap.server_port, chain):
            on.accepts(what, good, subject="user-1")
        brought = matrix.keys_brought_along(cast, trap.server_port, chain)
        attack(on, cast, "keys brought along", brought)
        for group in matrix.GROUPS + forms.GROUPS:
            attack(on, cast, group.__name__.replace("_", " "), group(cast))
        check_that_reasons_are_alike(on, cast)
        check_credentials(on, cast)
        check_heads(on, cast)
        tally.record("no link was followed", expect("connections", 0, trap.connections))


def check_good_variants(on, cast):
    """What looks odd and is good: or the attacks would prove nothing."""
    for typ in ('"at+jwt"', '"AT+JWT"', '"application/at+jwt"', '"Application/At+Jwt"'):
        header = with_member(cast.header("access"), "typ", typ)
        on.accepts(f"typ {typ}", cast.signed(header, cast.claims("access"), "access"))
    for name, value in {
        "exp": "9007199254740991",
        "nbf": "0",
        "iat": "1.5e9",
        "aud": '["other","api"]',
        "sub": json.dumps("\u00fc" * 128),
        "deep": '{"a":' * 15 + "1" + "}" * 15,
        "many": json.dumps({f"m{number}": 1 for number in range(247)}),
        "note": json.dumps('"\\\u2028\U0001f511'),
    }.items():
        payload = with_member(cast.claims(), name, value)
        on.accepts(f"{name} {value[:40]}", cast.signed(cast.header(), payload))
    for who in ("main", "twin"):
        header = with_member(cast.header(who), "kid", None)
        on.accepts(f"no kid, by a key of {who}", cast.signed(header, cast.claims(who), who))
    header = with_member(cast.header(), "b64", "false")
    on.accepts("b64 that is not critical", cast.signed(header, cast.claims()))
    spaced = json.dumps(cast.claims(), indent=4) + "\n"
    on.accepts("a payload with line breaks", cast.signed(cast.header(), spaced))


def check_that_reasons_are_alike(on, cast):
    """A client cannot find out which keys there are: an unknown one looks like a bad signature."""
    answers = set()
    for header, who in (
        (cast.header(), "twin"),
        (cast.header() | {"kid": "no such key"}, "main"),
        (cast.header() | {"kid": "no such key"}, "twin"),
        (cast.header() | {"kid": "key-2"}, "main"),
    ):
        reply, _ = on.ask(bearer(cast.signed(header, cast.claims(), who)))
        challenge = tuple(reply.values("www-authenticate"))
        answers.add((reply.status, challenge, reply.body))
    problems = expect("number of answers", 1, len(answers))
    on.tally.record("an unknown key reads like a wrong signature", problems)


def check_policies(binary, cast, tally):
    """Policies that would invite an attack are refused before anybody listens."""
    private = cast.rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files = {
        "empty": b"",
        "line-break": b"\n",
        "short": b"x" * 31,
        "public.pem": pem(cast.rsa),
        "private.pem": private,
        "private.jwk": json.dumps(jwk(cast.main) | {"d": "AQAB"}).encode(),
        "weak.jwk": json.dumps({"kty": "RSA", "n": jwk(cast.rsa)["n"][:86], "e": "AQAB"}).encode(),
        "encryption.jwk": json.dumps(jwk(cast.main, use="enc")).encode(),
    }
    for what, settings in {
        "an empty secret": {"secret_file": "../empty", "algorithms": ["HS256"]},
        "a secret that is a line break": {"secret_file": "../line-break", "algorithms": ["HS256"]},
        "a short secret": {"secret_file": "../short", "algorithms": ["HS256"]},
        "a public key as a secret": {"secret_file": "../public.pem", "algorithms": ["HS256"]},
        "a public key for HS256": {"public_key_file": "../public.pem", "algorithms": ["HS256"]},
        "a private key": {"public_key_file": "../private.pem", "algorithms": ["RS256"]},
        "a private JWK": {"jwks_file": "../private.jwk", "algorithms": ["ES384"]},
        "a short RSA key": {"jwks_file": "../weak.jwk", "algorithms": ["RS256"]},
        "a key for encryption": {"jwks_file": "../encryption.jwk", "algorithms": ["ES384"]},
        "secrets by URL": {"jwks_url": "https://a.test/jwks", "algorithms": ["HS256"]},
        "keys without TLS": {"jwks_url": "http://a.test/jwks", "algorithms": ["ES384"]},
        "a URL with a password": {"jwks_url": "https://a:b@a.test/", "algorithms": ["ES384"]},
        "keys from a file's URL": {"jwks_url": "file:///dev/null", "algorithms": ["ES384"]},
        "no algorithm": {"public_key_file": "../public.pem", "algorithms": ["none"]},
        "no keys": {"algorithms": ["ES384"]},
        "both kinds of keys": {"jwks_file": "../weak.jwk", "algorithms": ["HS256", "RS256"]},
    }.items():
        plan = Plan([{"issuer": issuer("main")} | settings], files=files)
        code, printed = check_policy(binary, plan)
        problems = expect("exit code", BAD_CONFIGURATION, code)
        tally.record(f"a policy with {what} is refused", problems and problems + [printed])
    code, printed = check_policy(binary, cast.plan())
    tally.record("the policy of all the attacks is fine", expect(printed, 0, code))


def check_policy(binary, plan):
    """The exit code of `tollgate check`, and what it says."""
    with tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
        policy = Path(folder) / "policies" / "main.yaml"
        policy.parent.mkdir()
        for name, content in plan.files.items():
            (Path(folder) / name).write_bytes(content)
        policy.write_text(plan.policy(1))
        command = [str(Path(binary).resolve()), "check", str(policy)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stdout + ran.stderr


def main():
    """Three proxies, one after the other, and policies that get none."""
    binary = binary_under_test(__doc__, 300)

    tally = Tally()
    cast = Cast()
    for check in (check_matrix, check_places, check_published_keys, check_policies):
        check(binary, cast, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
