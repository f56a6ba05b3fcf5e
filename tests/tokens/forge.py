"""Tokens made by hand: libraries refuse to make what the attack matrix is about.

Headers and payloads are JSON texts here and not objects, so that they can be wrong.
"""

import base64
import hashlib
import hmac
import json

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def token(header, payload, sign):
    """A compact token; `sign` takes what is signed, and gives the signature's bytes."""
    message = f"{base64url(header)}.{base64url(payload)}"
    return f"{message}.{base64url(sign(message.encode()))}"


def base64url(content):
    """Base64url of bytes, of a text, or of an object's JSON; without padding."""
    if isinstance(content, dict):
        content = json.dumps(content)
    if isinstance(content, str):
        content = content.encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def with_member(members, name, text):
    """The JSON of `members`, in which `name` has the value that `text` is; without it for None."""
    pairs = {json.dumps(key): json.dumps(value) for key, value in members.items() if key != name}
    if text is not None:
        pairs[json.dumps(name)] = text
    return "{" + ",".join(f"{key}:{value}" for key, value in pairs.items()) + "}"


def hmac_signer(algorithm, secret):
    """HS256, HS384 or HS512 by any bytes at all."""
    digest = getattr(hashlib, f"sha{algorithm[2:]}")
    return lambda message: hmac.digest(secret, message, digest)


def signer(algorithm, key):
    """A signature by a private key, in the form of RFC 7518 section 3."""
    if algorithm == "EdDSA":
        return key.sign
    digest = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}[algorithm[2:]]()
    match algorithm[:2]:
        case "RS":
            return lambda message: key.sign(message, padding.PKCS1v15(), digest)
        case "PS":
            salted = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
            return lambda message: key.sign(message, salted, digest)
        case _:
            size = (key.curve.key_size + 7) // 8

            def sign(message):
                numbers = decode_dss_signature(key.sign(message, ec.ECDSA(digest)))
                return b"".join(number.to_bytes(size, "big") for number in numbers)

            return sign


def nothing(_message):
    """No signature."""
    return b""


def constant(signature):
    """This signature, whatever is signed."""
    return lambda _message: signature


def jwk(key, **about):
    """The public half as a JWK."""
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        return {
            "kty": "RSA",
            "n": base64url(big(numbers.n)),
            "e": base64url(big(numbers.e)),
        } | about
    if isinstance(public, ed25519.Ed25519PublicKey):
        return {"kty": "OKP", "crv": "Ed25519", "x": base64url(raw(public))} | about
    numbers, size = public.public_numbers(), (public.curve.key_size + 7) // 8
    point = {name: base64url(getattr(numbers, name).to_bytes(size, "big")) for name in "xy"}
    return {"kty": "EC", "crv": f"P-{public.curve.key_size}"} | point | about


def big(number):
    """The bytes of a number, without leading zeros."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def raw(public):
    """The 32 bytes of an Ed25519 key."""
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw)


def pem(key):
    """The public half in PEM."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def spellings(key, published):
    """Bytes that a confused verifier could take a public key for, by name: its PEM, DER and JWK,
    as files hold them and as parsers leave them. `published` is what the issuer gives out."""
    public = key.public_key()

    def written(encoding, form):
        return public.public_bytes(encoding, form)

    spki, der = pem(key), written(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    body = b"".join(spki.splitlines()[1:-1])
    bare = jwk(key)
    yield "nothing", b""
    yield "a zero byte", b"\0"
    yield "PEM", spki
    yield "PEM without a last line break", spki.rstrip(b"\n")
    yield "PEM with CRLF", spki.replace(b"\n", b"\r\n")
    yield "PEM on one line", spki.replace(b"\n", b"")
    yield "PEM with escaped line breaks", spki.replace(b"\n", b"\\n")
    yield "PEM with two last line breaks", spki + b"\n"
    yield "PEM without its first and last line", body
    yield "PEM without its first and last line, as lines", b"\n".join(spki.splitlines()[1:-1])
    yield "DER", der
    yield "DER in hexadecimal", der.hex().encode()
    yield "DER in base64url", base64url(der).encode()
    yield "hash of the DER", hashlib.sha256(der).digest()
    for what, document in (
        ("JWK", bare),
        ("published JWK", published),
        ("JWKS", {"keys": [published]}),
    ):
        yield what, json.dumps(document).encode()
        yield f"{what}, compact", json.dumps(document, separators=(",", ":")).encode()
        yield f"{what}, sorted", json.dumps(
            document, separators=(",", ":"), sort_keys=True
        ).encode()
        yield f"{what}, indented", json.dumps(document, indent=2).encode()
        yield f"{what}, in base64url", base64url(document).encode()
    for member in ("n", "e", "x", "y"):
        if member in bare:
            yield f"{member} as text", bare[member].encode()
            yield f"{member} as bytes", base64.urlsafe_b64decode(bare[member] + "==")
    if isinstance(public, rsa.RSAPublicKey):
        pkcs1 = written(Encoding.PEM, PublicFormat.PKCS1)
        yield "PKCS#1 PEM", pkcs1
        yield "PKCS#1 PEM without a last line break", pkcs1.rstrip(b"\n")
        yield "PKCS#1 DER", written(Encoding.DER, PublicFormat.PKCS1)
    if isinstance(public, ec.EllipticCurvePublicKey):
        point = written(Encoding.X962, PublicFormat.UncompressedPoint)
        yield "point", point
        yield "point without its first byte", point[1:]
        yield "compressed point", written(Encoding.X962, PublicFormat.CompressedPoint)
    yield "OpenSSH", written(Encoding.OpenSSH, PublicFormat.OpenSSH)
