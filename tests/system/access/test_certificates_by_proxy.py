"""Client certificates that the proxies of ``deploy/tls`` verify: who a client is, and is not."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from eruca_deploy.ports import free_ports
from support.authority import Authority, Pair
from support.processes import running
from support.rules import bearer, write_rules
from support.tls_proxies import PROXIES, Proxy, moved, with_certificates
from support.waiting import wait_until

OWNER: Final = "user:owner"
BILLING: Final = "cert:dns:billing.example"
TARGET: Final = "/v1/status"


@dataclass(frozen=True)
class Front:
    """A broker behind a proxy that asks for client certificates."""

    url: str
    authority: Authority
    folder: Path

    def get(self, pair: Pair | None, **headers: str) -> httpx.Response:
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        with httpx.Client(verify=context, base_url=self.url) as client:
            return client.get(TARGET, headers=headers)

    def is_open(self) -> bool:
        try:
            return self.get(None, **bearer(OWNER)).status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module", params=PROXIES, ids=lambda proxy: proxy.program)
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    proxy: Proxy = request.param
    if shutil.which(proxy.program) is None:
        pytest.skip(f"{proxy.program} is not installed")
    folder = tmp_path_factory.mktemp(proxy.program)
    authority = Authority(folder)
    shutil.copy(authority.ca_file, folder / "clients.pem")
    server = authority.pair("127.0.0.1")
    ports = free_ports("127.0.0.1", 2)
    config = folder / proxy.snippet
    config.write_text(with_certificates(moved(proxy.snippet, folder, server, *ports)))
    rules = write_rules(
        folder / "rules.toml",
        {"allow": ["query"], "on": ["cluster"], "to": [BILLING]},
        roles={"administrator": [OWNER]},
    )
    with ExitStack() as stack:
        started = subprocess.Popen(proxy.command(config, folder), stderr=subprocess.DEVNULL)
        stack.callback(started.wait)
        stack.callback(started.terminate)
        stack.enter_context(
            running(
                "eruca_broker",
                {
                    "ERUCA_AUTH_FILE": str(rules),
                    "ERUCA_BROKER_LISTEN": f"unix:{folder}/broker.sock",
                    "ERUCA_BROKER_LISTEN_PEER": proxy.peer,
                    "ERUCA_BROKER_LISTEN_CLIENT_CERT": "true",
                    "ERUCA_BROKER_ADVERTISED_URL": f"https://127.0.0.1:{ports[0]}",
                    "ERUCA_BROKER_NAMESRV_URLS": "",
                    "ERUCA_BROKER_STORE_DIR": str(folder / "store"),
                },
            )
        )
        made = Front(f"https://127.0.0.1:{ports[0]}", authority, folder)
        wait_until(made.is_open)
        yield made


def header(pair: Pair) -> dict[str, str]:
    der = ssl.PEM_cert_to_DER_cert(pair.cert.read_text())
    return {"client-cert": f":{base64.b64encode(der).decode()}:"}


def test_a_certificate_that_the_proxy_verified_is_its_holders_principal(front: Front) -> None:
    billing = front.authority.pair("billing.example", file="billing")
    other = front.authority.pair("other.example", file="other")

    assert front.get(billing).status_code == 200
    refused = front.get(other)
    assert refused.status_code == 401
    assert refused.json()["detail"] == "no rule and no role names cert:dns:other.example"


def test_a_header_that_a_client_sends_is_dropped(front: Front) -> None:
    billing = front.authority.pair("billing.example", file="billing")
    other = front.authority.pair("other.example", file="other")

    assert front.get(None).status_code == 401
    assert front.get(None, **header(billing)).status_code == 401
    assert front.get(other, **header(billing)).status_code == 401
    assert front.get(billing, **header(other)).status_code == 200


def test_a_foreign_certificate_does_not_pass_the_proxy(front: Front) -> None:
    folder = front.folder / "foreign"
    folder.mkdir(exist_ok=True)
    foreign = Authority(folder).pair("billing.example", file="billing")

    try:
        status = front.get(foreign).status_code
    except httpx.TransportError:
        status = 0  # the handshake failed

    assert status in (0, 400)  # nginx answers by itself
