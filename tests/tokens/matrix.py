"""The attack matrix: groups of tokens that no verifier may accept.

Each group is a function that yields names and tokens. Where only the header or a claim is wrong,
the rest is as the issuer writes it, signature included: nothing else can be why it is refused.
Groups about a token's form are in forms.py.
"""

import json
import time

from cast import KID, issuer
from forge import (
    base64url,
    hmac_signer,
    jwk,
    nothing,
    signer,
    spellings,
    token,
    with_member,
)

DAY = 86_400


def algorithms(cast):
    """`alg` is a name that the issuer allows, to the letter, and the key's own."""
    values = ['"none"', '"None"', '"nOnE"', '"NONE"', '"none "', '" none"', r'"none\u0000"']
    values += ["null", "[]", '["ES384"]', "{}", "1", "true", '""', None]
    values += ['"es384"', '"ES384 "', r'"ES384\u0000"', '"ES256"', '"ES512"', '"ES256K"']
    values += ['"HS256"', '"HS384"', '"RS256"', '"PS384"', '"EdDSA"', '"Ed25519"']
    values += ['"RSA-OAEP"', '"dir"', '"A256GCM"', '"HS1"']
    for value in values:
        header = with_member(cast.header(), "alg", value)
        for what, sign in (
            ("signed", cast.sign("main")),
            ("not signed", nothing),
            ("with a secret of nothing", hmac_signer("HS256", b"")),
        ):
            yield f"alg {value}, {what}", token(header, cast.claims(), sign)
    # Without the last dot, as some libraries write tokens that are not signed.
    header = {"alg": "none"}
    yield "alg none in two parts", f"{base64url(header)}.{base64url(cast.claims())}"


def key_names(cast):
    """`kid` names one of the issuer's keys, which has signed; without it, one of them has."""
    texts = ["", "key-3", "KEY-1", "key-1 ", "key-1\0", "key-1\n", "../../../../dev/null"]
    texts += ["/dev/null", "' OR '1'='1", "key-1' UNION SELECT 'x", "$(id)", "|id", "http://[::1]/"]
    texts += ["k" * 128, "k" * 129, "k" * 4000, "key-\u0661", "__proto__", "constructor", "*"]
    values = [json.dumps(text) for text in texts]
    values += ["null", "1", "true", "[]", f'["{KID}"]', "{}", f'{{"kid":"{KID}"}}', "1e999"]
    for value in values + ['"key-2"', None]:
        header = with_member(cast.header(), "kid", value)
        who = "main" if value else "twin"
        yield f"kid {value and value[:40]}", cast.signed(header, cast.claims(), who)
        # A file that is not there, or empty, makes an empty key of a careless verifier.
        empty = with_member(cast.header() | {"alg": "HS256"}, "kid", value)
        signed = token(empty, cast.claims("hs256"), hmac_signer("HS256", b""))
        yield f"kid {value and value[:40]}, by an empty secret", signed


def keys_brought_along(cast, trap, certificate):
    """Keys in the header, or links to them, are never used. By default they are refused as such."""
    own = jwk(cast.stranger, kid=KID, alg="ES384")
    links = [f"http://127.0.0.1:{trap}/jwks", f"https://127.0.0.1:{trap}/jwks"]
    links += [f"http://main.test@127.0.0.1:{trap}/", f"//127.0.0.1:{trap}/", "file:///dev/null"]
    links = [json.dumps(link) for link in links]
    junk = ["null", '""', "1", "[]", "{}", "true"]
    values = {
        "jwk": [json.dumps(own), json.dumps(cast.published("main")), *junk],
        "jku": links + junk,
        "x5u": links + junk,
        "x5c": [json.dumps([certificate]), '["AAAA"]', '[""]', "[1]", *junk],
        "x5t": ['"AAAAAAAAAAAAAAAAAAAAAAAAAAA"', *junk],
        "x5t#S256": ['"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"', *junk],
    }
    by_stranger = signer("ES384", cast.stranger)
    for name, texts in values.items():
        for text in texts:
            header = with_member(cast.header(), name, text)
            yield f"{name} {text[:60]}", cast.signed(header, cast.claims())
            for who in ("main", "lenient"):
                bad = token(header, cast.claims(who), by_stranger)
                yield f"{name} {text[:60]}, by a stranger, to {who}", bad
    secret = b"a secret that came with the token"
    brought = {"kty": "oct", "k": base64url(secret.decode()), "kid": KID}
    header = cast.header() | {"alg": "HS256", "jwk": brought}
    for who in ("main", "lenient", "hs256"):
        bad = token(header, cast.claims(who), hmac_signer("HS256", secret))
        yield f"a secret as jwk, to {who}", bad


def hints_to_ignore(cast, trap, certificate):
    """Good tokens of the issuer whose hints are to be ignored."""
    hints = {"jwk": cast.published("main"), "jku": f"http://127.0.0.1:{trap}/jwks"}
    hints |= {"x5u": f"http://127.0.0.1:{trap}/x5u", "x5c": [certificate], "x5t": "AAAA"}
    for name, value in hints.items():
        header = cast.header("lenient") | {name: value}
        yield f"{name}, ignored", cast.signed(header, cast.claims("lenient"), "lenient")


def critical_extensions(cast):
    """There is no extension that is understood, so `crit` is refused whatever it holds."""
    values = ['["exp"]', '["x"]', "[]", '["b64"]', '["alg"]', '"exp"', "null", "1", "{}", "true"]
    for value in values:
        for name, member in (("nothing else", {}), ("what it names", {"x": 1, "b64": False})):
            header = with_member(cast.header() | member, "crit", value)
            yield f"crit {value} with {name}", cast.signed(header, cast.claims())
    # RFC 7797: the payload is signed as it is, and not in base64url.
    header = base64url(cast.header() | {"crit": ["b64"], "b64": False})
    payload = json.dumps(cast.claims())
    signature = cast.sign("main")(f"{header}.{payload}".encode())
    yield "b64 false, signed so", f"{header}.{base64url(payload)}.{base64url(signature)}"


def types(cast):
    """Where a type is expected there is no other, and no way to write it that is not a text."""
    values = ['"JWT"', '"jwt"', '"at+jwt "', r'"at+jwt\u0000"', '"at jwt"', '"application/jwt"']
    values += ['"dpop+jwt"', '"application/application/at+jwt"', '"text/at+jwt"', '""', None]
    values += ["null", "5", "true", '["at+jwt"]', "{}"]
    for value in values:
        header = with_member(cast.header("access"), "typ", value)
        yield f"typ {value}", cast.signed(header, cast.claims("access"), "access")


def issuers(cast):
    """`iss` is an issuer of the policy, to the letter; its key has signed, and no other's."""
    name = issuer("main")
    texts = [
        name + "/",
        name.upper(),
        name + " ",
        " " + name,
        name + "\0",
        name[:-1],
        name + ".evil",
    ]
    texts += ["", "main", "__proto__", "constructor", "prototype", "toString", "null", "*"]
    texts += [name.replace("https", "http"), name.replace("main", "m\u0430in"), f"{name}@evil.test"]
    values = [json.dumps(text) for text in texts]
    values += [None, "null", "1", "true", "{}", "[]", json.dumps([name]), json.dumps({"iss": name})]
    values += ["1e999", json.dumps([name, issuer("twin")])]
    for value in values:
        payload = with_member(cast.claims(), "iss", value)
        yield f"iss {value}", cast.signed(cast.header(), payload)


def claims(cast):
    """A claim of the wrong type, or out of range, is never taken for one that is absent."""
    now, secs = int(time.time()), r'"9999999999"'
    junk = [secs, '"soon"', '""', "null", "true", "false", "[]", "[9999999999]", "{}"]
    junk += ["1e999", "-1e999", "-1", "-0.5", "-9223372036854775808", "9007199254740992", "1e300"]
    junk += ["18446744073709551616", "99999999999999999999999999999999", "NaN", "Infinity", "0x7f"]
    mutations = {
        "exp": [None, *junk, "0", "0.0", "1e-5", str(now - 61), str(now - DAY), f"{now - 100}.5"],
        "nbf": [*junk, str(now + DAY), f"{now + DAY}.5"],
        "iat": [*junk, str(now + DAY), f"{now + DAY}.5"],
        "aud": [
            None,
            "null",
            "1",
            "true",
            "{}",
            "[]",
            '""',
            '[""]',
            "[1]",
            '["api",1]',
            '["api",null]',
        ]
        + ['"API"', '"api/"', '"api "', '"ap"', '"apis"', '"api other"', '"*"', '[["api"]]']
        + ['{"api":true}', '"other"', '["other"]', '["other","api2"]'],
        "sub": [None, "null", "1", "true", "[]", "{}", '""', '["user-1"]', json.dumps("u" * 257)]
        + [r'"user-1\u0000"', r'"a\r\nx-admin: 1"', r'"\u0007"', r'"\ud800"', r'"\u0085"'],
    }
    for name, values in mutations.items():
        for value in values:
            payload = with_member(cast.claims(), name, value)
            label = value and value[:60]
            yield f"{name} {label}", cast.signed(cast.header(), payload)


def documents(cast):
    """The header and the payload are each one JSON object that two parsers read in the same way."""
    header, payload = json.dumps(cast.header()), json.dumps(cast.claims())
    twice = {
        "header": ('"alg":"ES384"', r'"al\u0067":"ES384"', '"kid":"key-1"', '"x":1,"x":1'),
        "payload": ('"sub":"admin"', r'"s\u0075b":"admin"', '"exp":9999999999', '"aud":"api"')
        + (f'"iss":"{issuer("main")}"', '"a":{"b":1,"b":2}', '"a":[{"b":1,"b":1}]', '"x":1,"x":1'),
    }
    for member in twice["header"]:
        yield f"header with {member} at its end", cast.signed(f"{header[:-1]},{member}}}", payload)
        yield f"header with {member} first", cast.signed(f"{{{member},{header[1:]}", payload)
    for member in twice["payload"]:
        yield f"payload with {member} at its end", cast.signed(header, f"{payload[:-1]},{member}}}")
        yield f"payload with {member} first", cast.signed(header, f"{{{member},{payload[1:]}")

    def nested(text, bracket, levels):
        close = {"[": "]", '{"a":': "}"}[bracket]
        return f'{text[:-1]},"deep":{bracket * levels}1{close * levels}}}'

    wide = ",".join(f'"m{number}":1' for number in range(257))
    for what, spoil in {
        "not JSON": lambda text: text[1:],
        "empty": lambda _: "",
        "null": lambda _: "null",
        "a string": json.dumps,
        "an array": lambda text: f"[{text}]",
        "two objects": lambda text: text + text,
        "bytes behind it": lambda text: text + "x",
        "a zero byte behind it": lambda text: text + "\0",
        "a byte order mark": lambda text: "\ufeff" + text,
        "a comment": lambda text: "/**/" + text,
        "a last comma": lambda text: text[:-1] + ",}",
        "single quotes": lambda text: text.replace('"', "'"),
        "a raw line break in a text": lambda text: text[:-1] + ',"x":"\n"}',
        "a lone surrogate": lambda text: text[:-1] + r',"x":"\ud800"}',
        "a number beyond all": lambda text: text[:-1] + ',"x":1e999}',
        "UTF-16": lambda text: text.encode("utf-16"),
        "bad UTF-8": lambda text: text.encode()[:-1] + b',"x":"\xff"}',
        "overlong UTF-8": lambda text: text.encode()[:-1] + b',"x":"\xc0\xaf"}',
        "17 objects, one in the other": lambda text: nested(text, '{"a":', 16),
        "17 arrays, one in the other": lambda text: nested(text, "[", 16),
        "a thousand objects": lambda text: nested(text, '{"a":', 700),
        "a thousand arrays": lambda text: nested(text, "[", 1000),
        "257 members": lambda text: f"{text[:-1]},{wide}}}",
    }.items():
        yield f"header: {what}", cast.signed(spoil(header), payload)
        yield f"payload: {what}", cast.signed(header, spoil(payload))


def confusion(cast):
    """A public key is no secret, however it is written: RS256 does not become HS256."""
    targets = {"rsa-pem": cast.rsa, "rsa-jwks": cast.rsa, "main": cast.main}
    targets |= {"p256": cast.p256, "edwards": cast.edwards}
    for who, key in targets.items():
        for what, secret in spellings(key, cast.published(who)):
            for algorithm in ("HS256", "HS384", "HS512"):
                header = cast.header(who) | {"alg": algorithm}
                bad = token(header, cast.claims(who), hmac_signer(algorithm, secret))
                yield f"{algorithm} by the {what} of {who}", bad
    for algorithm in ("RS384", "RS512", "PS256", "PS384", "PS512"):
        for who in ("rsa-pem", "rsa-jwks"):
            header = cast.header(who) | {"alg": algorithm}
            yield f"{algorithm} by the key of {who}", token(
                header, cast.claims(who), signer(algorithm, cast.rsa)
            )


def other_issuers(cast):
    """A key speaks for its own issuer, even where another calls one of its keys the same."""
    for victim in ("main", "lenient", "rsa-pem", "rsa-jwks", "p256", "edwards", "hs256", "hs512"):
        for attacker in ("twin", "main", "rsa-pem", "p256", "edwards", "hs256", "hs512"):
            if cast.key(attacker) is cast.key(victim):
                continue
            signed = cast.signed(cast.header(attacker), cast.claims(victim), attacker)
            yield f"{attacker} signs for {victim}", signed
            header = cast.header(victim)
            yield f"{attacker} signs as {victim}", cast.signed(
                header, cast.claims(victim), attacker
            )
    yield "main signs for twin", cast.signed(cast.header("twin"), cast.claims("twin"), "main")
    # One secret, but each issuer has its algorithm.
    yield "hs512 signs for hs256", cast.signed(cast.header("hs512"), cast.claims("hs256"), "hs512")


GROUPS = [
    *(algorithms, key_names, critical_extensions, types, issuers, claims, documents),
    *(confusion, other_issuers),
]
