"""An authority and the certificates that it writes, for servers and for clients."""

import datetime
import ipaddress
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes
    serial: int

    def files(self, name):
        """What `NAME.pem` and `NAME.key` hold."""
        return {f"{name}.pem": self.certificate, f"{name}.key": self.key}


@dataclass
class Authority:
    """The authority that clients, or servers, trust."""

    name: str = "Authority"
    key: object = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self):
        unsigned = described(self.name, self.name, self.key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.pem = unsigned.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def issue(self, *names):
        """A pair for hosts, addresses or clients; the first name is the subject."""
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = (
            described(names[0], self.name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(list(map(general, names))), critical=False)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Pair(made.public_bytes(Encoding.PEM), secret, made.serial_number)


def described(subject, issuer, key):
    """A certificate that only lacks its extensions and its signature."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=90))
    )


def general(name):
    """An alternative name, as its kind is written."""
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
