"""TLS of a service: its certificate, the authorities of client certificates, and their changes.

The files are read at the start, and again when they have changed. Each connection gets the context
that was current when it came, so a change touches no open connection. A change that cannot be used,
such as a certificate whose key is not written yet, leaves the former context in use. The log says
so once, and the metric ``eruca_tls_files_invalid`` until the files are valid.

TLS 1.2 and 1.3 are spoken, with ephemeral keys and authenticated encryption only.

Source: RFC 9325 (Recommendations for Secure Use of TLS), sections 3 and 4.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from eruca_chassis.files.file_states import FileState, state_of
from eruca_chassis.start import StartError

ClientCertificates: TypeAlias = Literal["required", "optional"]

LOOK_SECONDS: Final = 1.0  # between two looks at the files
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of 1.3 are all sound
_PROTOCOLS: Final = ("http/1.1",)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a service's TLS, in PEM form.

    Args:
        cert: The certificate, with its chain.
        key: Its private key; None: it is in *cert*.
        client_ca: The authorities of client certificates; None: clients are not asked for any.
        client_certificates: Whether a client without a certificate is refused.
    """

    cert: Path
    key: Path | None = None
    client_ca: Path | None = None
    client_certificates: ClientCertificates = "required"

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return every file."""
        return tuple(path for path in (self.cert, self.key, self.client_ca) if path is not None)


class InvalidTlsFilesError(Exception):
    """The files of a service's TLS are missing or do not belong together; the text names them."""


class ServerTls:
    """The TLS of one service.

    Args:
        files: Its files.
        registry: For its metrics.

    Attributes:
        context: For the next connection.
        expires_at: When the certificate expires, the earliest of its chain.

    Raises:
        StartError: The files cannot be used.
    """

    def __init__(self, files: TlsFiles, registry: CollectorRegistry) -> None:
        self._files = files
        self._looks = self._look()
        try:
            self.context, self.expires_at = loaded(files)
        except InvalidTlsFilesError as error:
            raise StartError(str(error)) from error
        self.fault: str | None = None  # of the files as they are now
        Gauge(
            "eruca_tls_certificate_expires_timestamp_seconds",
            "When the certificate in use expires, in seconds since 1970",
            registry=registry,
        ).set_function(lambda: self.expires_at.timestamp())
        Gauge(
            "eruca_tls_files_invalid",
            "1 while the certificate's files have changed and cannot be used",
            registry=registry,
        ).set_function(lambda: float(self.fault is not None))
        self.failures = Counter(
            "eruca_tls_handshakes_failed",
            "Connections that ended before their handshake did, by reason",
            ["reason"],
            registry=registry,
        )

    async def refresh(self) -> None:
        """Load the files again if they have changed; keep what is in use if they are invalid."""
        looks = self._look()
        if looks == self._looks:
            return
        self._looks = looks
        try:
            self.context, self.expires_at = await asyncio.to_thread(loaded, self._files)
        except InvalidTlsFilesError as error:
            self.fault = str(error)
            _log.error("the former certificate stays in use", why=self.fault)
        else:
            self.fault = None
            _log.info("certificate loaded", expires_at=self.expires_at.isoformat())

    def _look(self) -> list[FileState | None]:
        return [state_of(path) for path in self._files.paths]


def loaded(files: TlsFiles) -> tuple[ssl.SSLContext, datetime]:
    """Return the context of *files*, and when their certificate expires.

    Raises:
        InvalidTlsFilesError: A file is missing or invalid, or key and certificate do not match.
    """
    named = ", ".join(map(str, files.paths))
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(_PROTOCOLS)
        # Without a function, OpenSSL asks the terminal for the passphrase of an encrypted key.
        context.load_cert_chain(files.cert, files.key, password=_no_passphrase)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            is_required = files.client_certificates == "required"
            context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        from cryptography import x509  # here: most services speak plain HTTP

        chain = x509.load_pem_x509_certificates(files.cert.read_bytes())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidTlsFilesError(
            f"the TLS files {named} cannot be used: {_why(error)}; check that each is readable and "
            "in PEM form, and that key and certificate belong together"
        ) from error
    return context, min(certificate.not_valid_after_utc for certificate in chain)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "no certificate in PEM form"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def _no_passphrase() -> str:
    raise ValueError("the private key is encrypted; store it without a passphrase")
