"""Client certificates: the name of their holder, as the TLS handshake or a proxy has proved it.

A name has its kind before it: ``uri:spiffe://shop/billing``, ``dns:billing.example``,
``email:ann@shop.example`` or ``cn:billing``. So an authority that signs the names of hosts and of
people cannot make one pass as the other. The first URI counts, else the first DNS name, else the
first e-mail address. The common name counts only if there is none of these. Characters that are
not visible ASCII, and percent signs, are written as in URLs.

A proxy on a Unix socket terminates TLS, and sends the certificate in the header *Client-Cert*: in
base64 between colons, or as nginx does, in PEM form with percent signs. The proxy has verified it.

Source: RFC 9440 (Client-Cert HTTP Header Field), section 2; RFC 9525 section 2; RFC 5280 section
4.2.1.6.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

if TYPE_CHECKING:
    from cryptography import x509

HEADER: Final = b"client-cert"
NAME_SIZE_MAX: Final = 240  # characters, so that it fits into a principal
_CACHED_MAX: Final = 1_024
_PLAIN: Final = "".join(map(chr, range(ord("!"), ord("~") + 1))).replace("%", "")


class ClientCertificate(NamedTuple):
    """A verified certificate.

    Attributes:
        name: Its holder's, with the kind before it.
        expires_at: When it expires, in seconds since 1970.
    """

    name: str
    expires_at: float


@lru_cache(_CACHED_MAX)
def certificate_of(der: bytes) -> ClientCertificate | None:
    """Return a verified certificate, in DER form; None if it names no holder."""
    from cryptography import x509  # here, as in all functions: most services get no certificates

    try:
        certificate = x509.load_der_x509_certificate(der)
        kind, value = _holder(certificate)
    except (ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension):
        return None
    name = f"{kind}:{quote(value, safe=_PLAIN)}"
    if not value or len(name) > NAME_SIZE_MAX:
        return None
    return ClientCertificate(name, certificate.not_valid_after_utc.timestamp())


@lru_cache(_CACHED_MAX)
def forwarded_certificate(value: bytes) -> ClientCertificate | None:
    """Return the certificate in a proxy's header; None if there is none, or anything else."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        if value.startswith(b":"):
            if len(value) < 2 or not value.endswith(b":"):
                return None
            return certificate_of(base64.b64decode(value[1:-1], validate=True))
        [certificate] = x509.load_pem_x509_certificates(unquote_to_bytes(value))
    except (ValueError, binascii.Error):
        return None
    return certificate_of(certificate.public_bytes(Encoding.DER))


def _holder(certificate: x509.Certificate) -> tuple[str, str]:
    """Return kind and name of a certificate's holder; an empty name: it has none.

    Raises:
        ValueError: It is malformed.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    for kind, form in (
        ("uri", x509.UniformResourceIdentifier),
        ("dns", x509.DNSName),
        ("email", x509.RFC822Name),
    ):
        found = names.get_values_for_type(form)
        if found:
            return kind, str(found[0])
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    value = common[0].value if len(common) == 1 else ""
    return "cn", value if isinstance(value, str) else ""
