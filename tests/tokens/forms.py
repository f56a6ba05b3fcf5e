"""The attack matrix, about form: signatures, spellings and sizes.

Groups as in matrix.py. What these tokens say is right; the form in which they say it is not the one
that there is.
"""

import json

from forge import base64url, constant, token, with_member


def signatures(cast):
    """A signature is of the form of its algorithm, whole, and of these very bytes."""
    size = {"main": 96, "p256": 64, "rsa-pem": 256, "edwards": 64, "hs256": 32, "hs512": 64}
    for who, length in size.items():
        good = cast.sign(who)
        for what, spoil in {
            "none": lambda _: b"",
            "zeros": lambda _: bytes(length),
            "ones": lambda _: b"\xff" * length,
            "a one": lambda _: bytes(length - 1) + b"\1",
            "one byte": lambda signature: signature[:1],
            "half": lambda signature: signature[: length // 2],
            "the last byte off": lambda signature: signature[:-1],
            "the first byte off": lambda signature: signature[1:],
            "a zero in front": lambda signature: b"\0" + signature,
            "a zero behind": lambda signature: signature + b"\0",
            "twice": lambda signature: signature + signature,
            "its halves swapped": lambda signature: signature[length // 2 :]
            + signature[: length // 2],
            "a bit turned": lambda signature: bytes([signature[0] ^ 128]) + signature[1:],
        }.items():
            bad = lambda message, spoil=spoil: spoil(good(message))
            yield f"{who}, {what}", token(cast.header(who), cast.claims(who), bad)
        other = cast.good(who).split(".")
        claims_of_another = base64url(cast.claims(who) | {"sub": "admin"})
        yield f"{who}, of another payload", f"{other[0]}.{claims_of_another}.{other[2]}"
    yield from curve_signatures(cast)


def curve_signatures(cast):
    """What is special about signatures on curves: their numbers, and their other forms."""
    # CVE-2022-21449: r and s must be between 0 and the order of the group.
    order = int("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
    for r, s in [(0, 1), (1, 0), (order, order), (0, order), (order, 0), (1, order), (order, 1)]:
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        bad = token(cast.header("p256"), cast.claims("p256"), constant(signature))
        yield f"r {r % 7} and s {s % 7} of the order", bad
    for who in ("main", "p256"):

        def der(message, who=who):
            signature = cast.sign(who)(message)
            halves = signature[: len(signature) // 2], signature[len(signature) // 2 :]
            numbers = [int.from_bytes(half, "big") for half in halves]
            body = b"".join(der_integer(number) for number in numbers)
            return b"\x30" + bytes([len(body)]) + body

        yield f"{who} in DER", token(cast.header(who), cast.claims(who), der)

    def malleable(message):
        signature = cast.edwards.sign(message)
        group = 2**252 + 27742317777372353535851937790883648493
        s = int.from_bytes(signature[32:], "little") + group
        return signature[:32] + s.to_bytes(32, "little")

    yield "edwards with s beyond the order", token(
        cast.header("edwards"), cast.claims("edwards"), malleable
    )


def der_integer(number):
    """ASN.1 INTEGER, not negative."""
    content = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return b"\x02" + bytes([len(content)]) + content


def formats(cast):
    """A token has one spelling: three parts in canonical base64url, and nothing around them."""
    header, payload, signature = cast.good().split(".")
    good = f"{header}.{payload}.{signature}"
    for at, part in enumerate(("header", "payload", "signature")):
        for what, spoil in {
            "empty": lambda _: "",
            "padded": lambda text: text + "=",
            "padded twice": lambda text: text + "==",
            "padded as it must be": lambda text: text + "=" * (-len(text) % 4 or 4),
            "with a space": lambda text: text[:4] + " " + text[4:],
            "with a tab": lambda text: text[:4] + "\t" + text[4:],
            "with a plus": lambda text: text[:4] + "+" + text[5:],
            "with a slash": lambda text: text[:4] + "/" + text[5:],
            "with a percent sign": lambda text: text[:4] + "%41" + text[5:],
            "with a letter beyond ASCII": lambda text: text[:4] + "\xe9" + text[5:],
            "cut short": lambda text: text[:-1],
            "one letter longer": lambda text: text + "A",
            "in capitals": str.upper,
            "quoted": lambda text: f'"{text}"',
        }.items():
            parts = [header, payload, signature]
            parts[at] = spoil(parts[at])
            yield f"{part} {what}", ".".join(parts)
    yield from second_spellings(cast)
    recipients = {"payload": payload, "protected": header, "signature": signature}
    general = {"payload": payload, "signatures": [{"protected": header, "signature": signature}]}
    unprotected = recipients | {"header": {"alg": "none"}}
    for what, text in {
        "two parts": f"{header}.{payload}",
        "four parts": f"{good}.{signature}",
        "four parts, one empty": f"{good}.",
        "a dot in front": f".{good}",
        "dots only": "..",
        "one part": header,
        "five parts (JWE)": f"{header}.{payload}.{signature}.{payload}.{signature}",
        "five parts (JWE) with its own header": ".".join(
            [base64url({"alg": "RSA-OAEP", "enc": "A256GCM"}), payload, "AAAA", payload, signature]
        ),
        "JSON serialisation": json.dumps(recipients),
        "JSON serialisation, general": json.dumps(general),
        "JSON serialisation, alg not protected": json.dumps(unprotected),
        "JSON serialisation in base64url": base64url(recipients),
        "quotes": f'"{good}"',
        "angle brackets": f"<{good}>",
        "a comma and itself": f"{good},{good}",
        "a second credential": f"{good}, Bearer {good}",
        "a second scheme": f"Bearer {good}",
        "a parameter": f'token="{good}"',
        "a line break, written": good + r"\r\n",
        "a zero, written": good + "%00",
        "reversed": good[::-1],
        "in base64url": base64url(good),
        "payload first": f"{payload}.{header}.{signature}",
    }.items():
        yield what, text


def second_spellings(cast):
    """Bits that decoders drop: the same bytes, and another token."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # 64 bytes leave four bits over, and spaces make the other two parts of such a length too.
    header, payload = (json.dumps(part) for part in (cast.header("p256"), cast.claims("p256")))
    header, payload = (text + " " * (-(len(text) + 2) % 3) for text in (header, payload))
    parts = token(header, payload, cast.sign("p256")).split(".")
    for at, part in enumerate(("header", "payload", "signature")):
        last = alphabet.index(parts[at][-1])
        for bit in (1, 2, 4, 8):
            spelt = [*parts]
            spelt[at] = parts[at][:-1] + alphabet[last ^ bit]
            yield f"{part} with spare bit {bit}", ".".join(spelt)


def sizes(cast):
    """What is too large is not read, and does not affect other requests."""
    for what, member in {
        "a claim of 8,000 bytes": ("note", json.dumps("x" * 8000)),
        "300 members": ("many", json.dumps({f"m{number}": 1 for number in range(300)})),
        "a number of 5,000 digits": ("exp", "9" * 5000),
        "long escapes": ("note", '"' + r"\u0041" * 1200 + '"'),
    }.items():
        yield what, cast.signed(cast.header(), with_member(cast.claims(), *member))
    yield "8193 bytes", "A" * 8193
    yield "8193 bytes in three parts", ".".join(["A" * 2732, "A" * 2732, "A" * 2727])
    header = cast.header() | {"note": "x" * 8000}
    yield "a header of 8,000 bytes", cast.signed(header, cast.claims())


GROUPS = [signatures, formats, sizes]
