"""Tokens of three unrelated libraries, for each algorithm and each way to give Tollgate the key.

A good one is accepted. It is not once a byte of it is changed, once it has expired, for another
audience, or by another key.
"""

import base64
import json
import os
import sys
import time

from front import AUDIENCE, KeyServer, Plan, front, serving
from harness import Tally, binary_under_test
from minting import ALGORITHMS, ASYMMETRIC, LIBRARIES, SYMMETRIC, Order

# Beyond the tolerance for clocks that disagree, which is a minute.
LONG_AGO_SECONDS = 120
LIFETIME_SECONDS = 3600

SECRET_SOURCES = ["secret_file", "secret_env", "jwks_file"]
PUBLIC_SOURCES = ["public_key_file", "jwks_file", "jwks_url"]


def sources(algorithm):
    """The ways in which a policy can be given a key of this algorithm."""
    return SECRET_SOURCES if algorithm in SYMMETRIC else PUBLIC_SOURCES


def issuer(library, algorithm, source):
    """Each has keys from one source, so that no other can be what verified its token."""
    return f"https://{library}.test/{algorithm}/{source}"


def orders(library):
    """What is asked of a library: for each issuer a good token and three that are not."""
    now = int(time.time())
    for algorithm in ALGORITHMS:
        for source in sources(algorithm):
            claims = {
                "iss": issuer(library, algorithm, source),
                "aud": AUDIENCE,
                "sub": "user-1",
                "plan": "pro",
                "iat": now - 2 * LONG_AGO_SECONDS,
                "exp": now + LIFETIME_SECONDS,
            }
            yield "good", Order(algorithm, claims)
            yield "expired", Order(algorithm, claims | {"exp": now - LONG_AGO_SECONDS})
            yield "for another audience", Order(algorithm, claims | {"aud": "other"})
            yield "by another key", Order(algorithm, claims, by_another_key=True)


def describe(library, keys, key_port):
    """The issuers of a library's tokens, the files that they need, and what is published."""
    issuers, files, documents = [], {}, {}
    # A library that names its keys can publish all of them in one set.
    has_names = "kid" in keys["RS256"].jwk
    for algorithm in ALGORITHMS:
        key, name = keys[algorithm], f"{library}-{algorithm}"
        of_kind = SYMMETRIC if algorithm in SYMMETRIC else ASYMMETRIC
        published = [keys[other].jwk for other in of_kind] if has_names else [key.jwk]
        files[f"{name}.jwks"] = json.dumps({"keys": published}).encode()
        documents[f"/{name}"] = {"keys": published}
        where = {
            "jwks_file": f"../{name}.jwks",
            "jwks_url": f"http://127.0.0.1:{key_port}/{name}",
            "public_key_file": f"../{name}.pem",
            "secret_file": f"../{name}.secret",
            "secret_env": f"SECRET_{library}_{algorithm}",
        }
        if algorithm in SYMMETRIC:
            files[f"{name}.secret"] = f"{key.secret}\n".encode()
            os.environ[where["secret_env"]] = key.secret
        else:
            files[f"{name}.pem"] = key.pem.encode()
        for source in sources(algorithm):
            issuers.append(
                {
                    "issuer": issuer(library, algorithm, source),
                    "audience": [AUDIENCE],
                    "algorithms": [algorithm],
                    source: where[source],
                }
            )
    return issuers, files, documents


def changed(token):
    """The token with one byte of it another, in each of its parts, and what was changed.

    Some of them break the part as such. Others are as well formed as what was signed.
    """
    parts = token.split(".")
    for at, part in enumerate(("header", "payload", "signature")):
        content = from_base64url(parts[at])
        for place in (0, len(content) // 2, len(content) - 1):
            yield f"byte {place} of its {part}", with_byte(parts, at, place)
    for at, text in ((0, b'"JWT"'), (1, b"user-1"), (1, b'"pro"')):
        # The last character of a name is another letter.
        place = from_base64url(parts[at]).index(text) + len(text.rstrip(b'"')) - 1
        yield f"a letter of {text.decode()}", with_byte(parts, at, place)


def with_byte(parts, at, place):
    """The lowest bit of one byte turned over."""
    content = bytearray(from_base64url(parts[at]))
    content[place] ^= 1
    return ".".join([*parts[:at], to_base64url(content), *parts[at + 1 :]])


def from_base64url(text):
    """The bytes."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def to_base64url(content):
    """The text, without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def check(on, library, minted):
    """Every token of a library."""
    for kind, order, token in minted:
        name = f"{library} {order.claims['iss'].split('/', 3)[3]}"
        if kind == "good":
            on.accepts(name, token, subject="user-1", tier="pro")
        else:
            on.refuses(f"{name} {kind}", token)
    # Whatever the key came from, the same code looks at the bytes.
    seen = set()
    for kind, order, token in minted:
        if kind == "good" and order.algorithm not in seen:
            seen.add(order.algorithm)
            for what, bad in changed(token):
                on.refuses(f"{library} {order.algorithm} with {what} changed", bad)
            on.accepts(f"{library} {order.algorithm} after all that", token)


def main():
    """All libraries mint for one proxy, in which each algorithm and source has its own issuer."""
    binary = binary_under_test(__doc__, 300)

    tally = Tally()
    plan = Plan(issuers=[])
    minted = {}
    with serving(KeyServer) as publisher:
        for library, mint in LIBRARIES.items():
            kinds, asked = zip(*orders(library))
            keys, tokens = mint(asked)
            minted[library] = list(zip(kinds, asked, tokens))
            issuers, files, documents = describe(library, keys, publisher.server_port)
            plan.issuers += issuers
            plan.files |= files
            publisher.documents |= documents
        with front(binary, plan, tally) as on:
            for library in LIBRARIES:
                print(f"{library}: {len(minted[library])} tokens")
                check(on, library, minted[library])
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
