"""The names of client certificates' holders, and certificates in a proxy's header."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from urllib.parse import quote

import pytest

from eruca_chassis.admission.certificates import certificate_of, forwarded_certificate
from support.authority import Authority


def der_of(folder: Path, *names: str, has_san: bool = True) -> bytes:
    pair = Authority(folder).pair(*names, has_san=has_san)
    return ssl.PEM_cert_to_DER_cert(pair.cert.read_text())


@pytest.mark.parametrize(
    ("names", "has_san", "name"),
    [
        (["billing.example"], True, "dns:billing.example"),
        (["b.example", "a.example"], True, "dns:b.example"),
        (["a.example", "ann@shop.example", "spiffe://shop/a"], True, "uri:spiffe://shop/a"),
        (["ann@shop.example", "127.0.0.1"], True, "email:ann@shop.example"),
        (["127.0.0.1"], True, "cn:127.0.0.1"),
        (["billing"], False, "cn:billing"),
        (["dns:a.example"], False, "cn:dns:a.example"),
        (["Ann Lee"], False, "cn:Ann%20Lee"),
        (["Ann%20Lee"], False, "cn:Ann%2520Lee"),
        (["\u0430nn"], False, "cn:%D0%B0nn"),
        (["a\x00b"], False, "cn:a%00b"),
        (["127.0.0.1", ".".join(["a" * 60] * 4)], True, None),
    ],
)
def test_the_holders_name_has_its_kind(
    tmp_path: Path, names: list[str], has_san: bool, name: str | None
) -> None:
    found = certificate_of(der_of(tmp_path, *names, has_san=has_san))

    assert (None if found is None else found.name) == name


def test_a_certificate_expires_when_it_says(tmp_path: Path) -> None:
    pair = Authority(tmp_path).pair("a.example", days=-1, begins_days_ago=3)
    found = certificate_of(ssl.PEM_cert_to_DER_cert(pair.cert.read_text()))

    assert found is not None
    end = ssl.cert_time_to_seconds
    shown = ssl._ssl._test_decode_cert(str(pair.cert))["notAfter"]  # type: ignore[attr-defined]
    assert found.expires_at == end(shown)


def test_both_spellings_of_a_proxys_header_are_read(tmp_path: Path) -> None:
    der = der_of(tmp_path, "billing.example")
    standard = b":" + base64.b64encode(der) + b":"
    nginx = quote(ssl.DER_cert_to_PEM_cert(der)).encode()

    for value in (standard, nginx):
        found = forwarded_certificate(value)
        assert found is not None
        assert found.name == "dns:billing.example"


def test_every_other_header_names_nobody(tmp_path: Path) -> None:
    der = der_of(tmp_path, "billing.example")
    standard = b":" + base64.b64encode(der) + b":"
    nginx = quote(ssl.DER_cert_to_PEM_cert(der)).encode()

    for value in (
        b"",
        b":",
        b"::",
        b":!:",
        b":YQ==:",
        standard[:-1],
        standard[:40] + standard[60:],
        standard + b"," + standard,  # the client's own, and the proxy's
        standard + b", " + standard,
        nginx + nginx,
        nginx + b"," + nginx,
        base64.b64encode(der),
        b"CN=billing.example",
        b"%",
        b"\xff",
    ):
        assert forwarded_certificate(value) is None, value[:20]
