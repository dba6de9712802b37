"""A certificate authority and certificates for a local cluster.

They are made once, in ``tls/`` of the data directory, and kept: clients that trust the authority go
on to trust it after a restart. The services' certificate is renewed when it is near its end. It is
for names and addresses of this machine, so a local cluster needs no name server of its own, and
for further names if they are given.

The authority's key stays in that directory. A reader of it can pretend to be the cluster, so these
certificates are for one machine. For a network use an authority of your own (RUNNING.md).
"""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eruca_deploy.plan import MODULES
from eruca_deploy.private_files import replace_file

DIRECTORY: Final = "tls"
AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397  # the most that browsers accept
_RENEWED_DAYS: Final = 30  # before the end
_SKEW: Final = dt.timedelta(minutes=5)  # a clock that is slow must not reject a new certificate
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of a cluster's TLS."""

    ca_file: Path
    cert_file: Path
    key_file: Path

    def settings(self) -> Mapping[str, str]:
        """Return the environment with which the services speak TLS, and trust one another."""
        settings = {"ERUCA_TLS_CA_FILE": str(self.ca_file)}
        for module in MODULES:
            settings[f"{module.upper()}_TLS_CERT_FILE"] = str(self.cert_file)
            settings[f"{module.upper()}_TLS_KEY_FILE"] = str(self.key_file)
        return settings


def made_certificates(data_dir: Path, names: Collection[str] = ()) -> Certificates:
    """Return the certificates of the cluster in *data_dir*; make those that are missing or old.

    Args:
        data_dir: The cluster's directory.
        names: Further names and addresses of the services.
    """
    folder = data_dir / DIRECTORY
    folder.mkdir(0o700, parents=True, exist_ok=True)
    files = Certificates(folder / "ca.pem", folder / "cluster.pem", folder / "cluster.key")
    ca_key_file = folder / "ca.key"
    now = dt.datetime.now(dt.UTC)
    if not (files.ca_file.exists() and ca_key_file.exists()):
        key, authority = _new_authority(now)
        replace_file(ca_key_file, _pem_of_key(key))
        replace_file(files.ca_file, _pem(authority))
        files.cert_file.unlink(missing_ok=True)
    if not _is_fresh(files, now, names):
        authority = x509.load_pem_x509_certificate(files.ca_file.read_bytes())
        loaded = serialization.load_pem_private_key(ca_key_file.read_bytes(), password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey), "we wrote it"
        key, certificate = _new_certificate(authority, loaded, now, names)
        replace_file(files.key_file, _pem_of_key(key))
        replace_file(files.cert_file, _pem(certificate))
    return files


def _is_fresh(files: Certificates, now: dt.datetime, names: Collection[str]) -> bool:
    if not (files.cert_file.exists() and files.key_file.exists()):
        return False
    certificate = x509.load_pem_x509_certificate(files.cert_file.read_bytes())
    known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if not {*map(_name, names)} <= {*known}:
        return False
    return certificate.not_valid_after_utc - now > dt.timedelta(days=_RENEWED_DAYS)


def _new_authority(now: dt.datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _common_name("Eruca local cluster")
    builder = _builder(name, name, key, now, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return key, builder.add_extension(_usage(signs=True), critical=True).sign(key, hashes.SHA256())


def _new_certificate(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    more_names: Collection[str],
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    # Of several names of this machine each is listed once.
    names = dict.fromkeys((*_LOOPBACK, socket.gethostname(), socket.getfqdn(), *more_names))
    certificate = (
        _builder(_common_name("localhost"), authority.subject, key, now, CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName([*map(_name, names)]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return key, certificate


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    days: int,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
