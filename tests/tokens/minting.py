"""Keys and tokens as three unrelated libraries make them: PyPI joserfc and PyJWT, npm jose.

A library is a function that takes orders and gives, for each algorithm, what it exports of its key
(`Keys`), and a token for each order. Keys and exports are the library's own, not one byte is ours.
"""

import json
import os
import secrets
import subprocess
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import jwt as pyjwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwk, jwt
from joserfc.errors import SecurityWarning

SYMMETRIC = ["HS256", "HS384", "HS512"]
ASYMMETRIC = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "EdDSA"),
]
ALGORITHMS = SYMMETRIC + ASYMMETRIC
RSA_BITS = 2048
CURVES = {"ES256": "P-256", "ES384": "P-384"}

ROOT = Path(__file__).resolve().parents[2]
# Where `tests/run.sh` installs npm's packages, and the script beside them.
NODE_FOLDER = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "test-tokens"


@dataclass
class Order:
    """A token that is wanted: signed by the key of its algorithm, or by another of that kind."""

    algorithm: str
    claims: dict
    by_another_key: bool = False
    typ: str = "JWT"


@dataclass
class Keys:
    """What a library exports of one key; of a secret there is no `pem`."""

    jwk: dict
    pem: str | None = None
    # Text, as files and variables hold it.
    secret: str | None = None


def new_secret():
    """Long enough for every algorithm."""
    return secrets.token_hex(64)


def joserfc(orders):
    """joserfc, whose keys know their own `kid`, `use` and `alg`."""

    def generate(algorithm):
        about = {"use": "sig", "alg": algorithm}
        match algorithm[:2]:
            case "HS":
                key = jwk.OctKey.import_key(new_secret(), about)
                key.ensure_kid()
                return key
            case "ES":
                return jwk.ECKey.generate_key(CURVES[algorithm], about, auto_kid=True)
            case "Ed":
                return jwk.OKPKey.generate_key("Ed25519", about, auto_kid=True)
            case _:
                return jwk.RSAKey.generate_key(RSA_BITS, about, auto_kid=True)

    keys = {algorithm: generate(algorithm) for algorithm in ALGORITHMS}
    others = {algorithm: generate(algorithm) for algorithm in ALGORITHMS}
    tokens = []
    for order in orders:
        key = (others if order.by_another_key else keys)[order.algorithm]
        # A stranger names the key that he would like to have.
        header = {"alg": order.algorithm, "typ": order.typ, "kid": keys[order.algorithm].kid}
        with warnings.catch_warnings():
            # `EdDSA` has a successor (RFC 9864), which issuers do not write yet.
            warnings.simplefilter("ignore", SecurityWarning)
            tokens.append(jwt.encode(header, order.claims, key, algorithms=[order.algorithm]))
    return {name: joserfc_export(key) for name, key in keys.items()}, tokens


def joserfc_export(key):
    """The public half."""
    if key.key_type == "oct":
        return Keys(key.as_dict(private=True), secret=key.raw_value.decode())
    return Keys(key.as_dict(private=False), pem=key.as_pem(private=False).decode())


def py_jwt(orders):
    """PyJWT, whose keys are those of `cryptography`, and whose JWKs have no `kid`."""

    def generate(algorithm):
        match algorithm[:2]:
            case "HS":
                return new_secret().encode()
            case "ES":
                curve = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1}[CURVES[algorithm]]
                return ec.generate_private_key(curve())
            case "Ed":
                return ed25519.Ed25519PrivateKey.generate()
            case _:
                return rsa.generate_private_key(65537, RSA_BITS)

    keys = {algorithm: generate(algorithm) for algorithm in ALGORITHMS}
    others = {algorithm: generate(algorithm) for algorithm in ALGORITHMS}
    tokens = [
        pyjwt.encode(
            order.claims,
            (others if order.by_another_key else keys)[order.algorithm],
            order.algorithm,
            headers={"typ": order.typ},
        )
        for order in orders
    ]
    return {name: py_jwt_export(name, key) for name, key in keys.items()}, tokens


def py_jwt_export(algorithm, key):
    """The public half."""
    writer = pyjwt.get_algorithm_by_name(algorithm)
    if algorithm in SYMMETRIC:
        return Keys(writer.to_jwk(key, as_dict=True), secret=key.decode())
    public = key.public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Keys(writer.to_jwk(public, as_dict=True), pem=pem.decode())


def jose(orders):
    """npm's jose, by a script of its own."""
    order = {"algorithms": ALGORITHMS, "tokens": [asdict(order) for order in orders]}
    node = subprocess.run(
        ["node", "mint.mjs"],
        cwd=NODE_FOLDER,
        input=json.dumps(order),
        text=True,
        capture_output=True,
        timeout=120,
    )
    if node.returncode != 0:
        raise RuntimeError(f"node: {node.stderr.strip()}")
    made = json.loads(node.stdout)
    return {name: Keys(**keys) for name, keys in made["keys"].items()}, made["tokens"]


LIBRARIES = {"joserfc": joserfc, "pyjwt": py_jwt, "jose": jose}
