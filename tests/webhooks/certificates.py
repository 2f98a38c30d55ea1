"""An authority for tests, and what it and others certify. Keys and certificates are written as PEM files."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Authority:
    """`path` is its own certificate, for clients; `context` makes a server's."""

    path: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    @classmethod
    def made(cls, folder: Path, name: str = "tests") -> "Authority":
        key, title = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = begun(title, title, key, days=1)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        path = folder / f"{name}.pem"
        path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return cls(path, key, title)

    def context(self, name: str = LOOPBACK, *, days: int = 1) -> ssl.SSLContext:
        """For a server that is called `name`; expired where `days` is negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), self.name, key, days=days)
        alternative = x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        path = self.path.with_name(f"{name}{days}.pem")
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
    )
