"""Client certificates as principals: by TLS of a service, and by a proxy on its Unix socket."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import eruca
from eruca.contract.errors import ErucaError, NoLiveBrokerError, UnauthenticatedError
from eruca_broker.app import create_app as create_broker
from eruca_broker.settings import BrokerSettings
from eruca_chassis.running.serving import embedded
from eruca_chassis.running.settings import SettingsError
from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.authority import Authority, Pair
from support.rules import basic, bearer, key_of, write_rules
from support.services import serving

pytestmark = pytest.mark.anyio

OWNER: Final = "user:owner"
BILLING: Final = "cert:dns:billing.example"
SHOP: Final = "cert:dns:shop.example"
TARGET: Final = "/v1/status"  # needs query on the cluster
READS: Final = {"allow": ["query"], "on": ["cluster"], "to": [BILLING]}
PATIENCE_SECONDS: Final = 20.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Service:
    """A service that speaks TLS and has rules."""

    def __init__(self, address: tuple[str, int], authority: Authority, rules: Path) -> None:
        self.address = address
        self.url = f"https://127.0.0.1:{address[1]}"
        self.authority = authority
        self._rules = rules

    def allow(self, *rules: Mapping[str, Any]) -> None:
        write_rules(self._rules, *rules, roles={"administrator": [OWNER]})

    def context(self, pair: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context

    async def get(
        self, pair: Pair | None = None, target: str = TARGET, **headers: str
    ) -> httpx.Response:
        async with httpx.AsyncClient(verify=self.context(pair), base_url=self.url) as client:
            return await client.get(target, headers=headers)


def settings_of(
    kind: type[NamesrvSettings] | type[BrokerSettings],
    authority: Authority,
    rules: Path,
    **others: object,
) -> Any:  # noqa: ANN401  (of that kind)
    server = authority.pair("127.0.0.1")
    return kind.model_validate(
        {
            "ERUCA_AUTH_FILE": str(rules),
            "tls_cert_file": server.cert,
            "tls_key_file": server.key,
            "tls_client_ca_file": authority.ca_file,
            "tls_client_certificates": "optional",
            **others,
        }
    )


@asynccontextmanager
async def service_with(
    tmp_path: Path, *rules: Mapping[str, Any], **others: object
) -> AsyncIterator[Service]:
    authority = Authority(tmp_path)
    path = tmp_path / "rules.toml"
    write_rules(path, *rules, roles={"administrator": [OWNER]})
    settings = settings_of(NamesrvSettings, authority, path, settle_seconds=0, **others)
    async with serving(create_app(settings), settings) as (_, address):
        yield Service(address, authority, path)


async def test_a_certificate_is_its_holders_principal(tmp_path: Path) -> None:
    async with service_with(tmp_path, READS, {**READS, "on": ["log"], "to": [SHOP]}) as service:
        billing = service.authority.pair("billing.example", file="billing")
        shop = service.authority.pair("shop.example", file="shop")
        other = service.authority.pair("other.example", file="other")

        assert (await service.get(billing)).status_code == 200
        refused = await service.get(shop)
        assert (refused.status_code, refused.json()["fix"]) == (
            403,
            f"grant query on cluster to {SHOP}",
        )
        unknown = await service.get(other)
        assert unknown.status_code == 401
        assert unknown.json()["detail"] == "no rule and no role names cert:dns:other.example"
        assert (await service.get()).status_code == 401


async def test_credentials_in_a_header_decide_alone(tmp_path: Path) -> None:
    async with service_with(tmp_path, READS) as service:
        billing = service.authority.pair("billing.example", file="billing")

        assert (await service.get(billing, **bearer(OWNER))).status_code == 200
        for headers in (
            bearer("user:unknown"),
            basic("user:unknown"),
            {"authorization": ""},
            {"authorization": "Negotiate x"},
        ):
            answer = await service.get(billing, **headers)
            assert answer.status_code == 401, headers


async def test_a_certificate_ends_with_the_rules_that_name_it(tmp_path: Path) -> None:
    async with service_with(tmp_path, READS) as service:
        billing = service.authority.pair("billing.example", file="billing")
        context = service.context(billing)
        async with httpx.AsyncClient(verify=context, base_url=service.url) as client:
            assert (await client.get(TARGET)).status_code == 200
            service.allow()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await client.get(TARGET)).status_code != 401:
                    pass


async def test_a_connection_ends_to_be_known_when_its_certificate_expires(tmp_path: Path) -> None:
    async with service_with(tmp_path, READS) as service:
        brief = service.authority.pair("billing.example", file="brief", days=3 / 86_400)
        context = service.context(brief)
        async with httpx.AsyncClient(verify=context, base_url=service.url) as client:
            assert (await client.get(TARGET)).status_code == 200
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (answer := await client.get(TARGET)).status_code != 401:
                    pass
            assert answer.json()["detail"] == f"the certificate of {BILLING} has expired"


async def test_expired_and_foreign_certificates_do_not_enter(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    foreign = Authority(tmp_path / "foreign").pair("billing.example", file="billing")
    async with service_with(tmp_path, READS) as service:
        expired = service.authority.pair(
            "billing.example", file="expired", days=-1, begins_days_ago=3
        )
        for pair in (expired, foreign):
            with pytest.raises(httpx.TransportError):
                await service.get(pair)
        assert (await service.get(None, **bearer(OWNER))).status_code == 200


async def s_client(service: Service, *options: str, said: bytes = b"") -> tuple[int | None, str]:
    """Return the exit code and the output of OpenSSL's own client."""
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{service.address[1]}"),
        *("-CAfile", str(service.authority.ca_file), "-ign_eof", *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(said), PATIENCE_SECONDS)
    return process.returncode, output.decode("latin-1")


async def test_openssls_client_enters_by_its_certificate_and_not_by_old_versions(
    tmp_path: Path,
) -> None:
    request = b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n" % TARGET.encode()
    async with service_with(tmp_path, READS) as service:
        billing = service.authority.pair("billing.example", file="billing")
        own = ["-cert", str(billing.cert), "-key", str(billing.key)]
        for version in ("-tls1_2", "-tls1_3"):
            _, output = await s_client(service, version, *own, said=request)
            assert "HTTP/1.1 200 OK" in output
            _, output = await s_client(service, version, said=request)
            assert "HTTP/1.1 401 Unauthorized" in output
        for version in ("-tls1", "-tls1_1"):
            code, output = await s_client(
                service, version, "-cipher", "ALL:@SECLEVEL=0", *own, said=request
            )
            assert code != 0
            assert "Cipher is (NONE)" in output
            assert "HTTP/1.1" not in output


async def test_a_header_of_a_client_over_tcp_is_no_certificate(tmp_path: Path) -> None:
    async with service_with(tmp_path, READS) as service:
        billing = service.authority.pair("billing.example", file="billing")
        shop = service.authority.pair("shop.example", file="shop")
        forged = forwarded(billing)

        assert (await service.get(None, **{"client-cert": forged})).status_code == 401
        assert (await service.get(shop, **{"client-cert": forged})).status_code == 401


async def test_the_sdk_enters_by_its_certificate(tmp_path: Path) -> None:
    sees = {"allow": ["query"], "on": ["topic:orders", "cluster"], "to": [BILLING]}
    async with service_with(tmp_path, sees) as service:
        billing = service.authority.pair("billing.example", file="billing")
        for pair, expected in ((billing, NoLiveBrokerError), (None, UnauthenticatedError)):
            files = eruca.TlsFiles(
                ca_file=service.authority.ca_file,
                cert_file=None if pair is None else pair.cert,
                key_file=None if pair is None else pair.key,
            )
            async with eruca.AsyncClient(service.url, tls_files=files) as client:
                with pytest.raises(ErucaError) as raised:
                    await client.admin.list_topics()
            assert isinstance(raised.value, expected)


async def test_a_known_head_of_one_certificate_is_not_anothers(tmp_path: Path) -> None:
    """Equal bytes on three connections: two with certificates, and one without."""
    authority, path = Authority(tmp_path), tmp_path / "rules.toml"
    produces = {"allow": ["produce"], "on": ["topic:orders"], "to": [BILLING]}
    named = {"allow": ["query"], "on": ["cluster"], "to": [SHOP]}
    write_rules(path, produces, named, roles={"administrator": [OWNER]})
    settings = settings_of(
        BrokerSettings, authority, path, store_dir=tmp_path / "store", namesrv_urls=""
    )
    body = b'{"body": {"text": "a"}}'
    request = (
        b"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    keyed = request.replace(b"host:", b"authorization: Bearer %b\r\nhost:" % key_of(OWNER).encode())
    async with serving(create_broker(settings), settings) as (_, address):
        service = Service(address, authority, path)
        pairs = [
            authority.pair("billing.example", file="billing"),
            authority.pair("shop.example", file="shop"),
            None,
        ]
        assert (await put(service, "/v1/topics/orders", bearer(OWNER))).status_code == 201
        links = [
            await asyncio.open_connection(*address, ssl=service.context(pair)) for pair in pairs
        ]
        statuses = []
        for said in (request, keyed, request, keyed, request):
            for reader, writer in links:
                writer.write(said)
                statuses.append(await status_of(reader))
        for _, writer in links:
            writer.close()
    assert statuses == [201, 403, 401, 201, 201, 201, 201, 403, 401, 201, 201, 201, 201, 403, 401]


async def put(service: Service, target: str, headers: Mapping[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(verify=service.context(), base_url=service.url) as client:
        return await client.put(target, json={}, headers=headers)


async def status_of(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    await reader.readexactly(int(length[1]))
    return int(head.split(b" ", 2)[1])


async def test_a_pull_that_waits_ends_when_its_certificate_leaves_the_rules(
    tmp_path: Path,
) -> None:
    authority, path = Authority(tmp_path), tmp_path / "rules.toml"
    consumes = {"allow": ["consume"], "on": ["topic:orders"], "to": [BILLING]}
    write_rules(path, consumes, roles={"administrator": [OWNER]})
    settings = settings_of(
        BrokerSettings, authority, path, store_dir=tmp_path / "store", namesrv_urls=""
    )
    async with serving(create_broker(settings), settings) as (_, address):
        service = Service(address, authority, path)
        billing = authority.pair("billing.example", file="billing")
        await put(service, "/v1/topics/orders", bearer(OWNER))
        held = asyncio.create_task(
            service.get(billing, "/v1/topics/orders/queues/0/messages?offset=0&wait_seconds=4")
        )
        assert (await service.get(billing, "/v1/topics/orders")).status_code == 200
        service.allow()
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await held
    assert answer.status_code == 401


# --- By a proxy -----------------------------------------------------------------------------------


def forwarded(pair: Pair) -> str:
    der = ssl.PEM_cert_to_DER_cert(pair.cert.read_text())
    return f":{base64.b64encode(der).decode()}:"


@pytest.mark.parametrize("peer", ["none", "forwarded"])
@pytest.mark.parametrize("is_told", [True, False])
async def test_a_proxys_header_counts_on_a_unix_socket_that_expects_it(
    tmp_path: Path, peer: str, is_told: bool
) -> None:
    authority, path = Authority(tmp_path), tmp_path / "rules.toml"
    socket_path = tmp_path / "s.sock"
    write_rules(path, READS, roles={"administrator": [OWNER]})
    settings = NamesrvSettings.model_validate(
        {
            "ERUCA_AUTH_FILE": str(path),
            "settle_seconds": 0,
            "listen": f"unix:{socket_path}",
            "listen_peer": peer,
            "listen_client_cert": is_told,
        }
    )
    billing = authority.pair("billing.example", file="billing")
    shop = authority.pair("shop.example", file="shop")
    transport = httpx.AsyncHTTPTransport(uds=str(socket_path))
    async with (
        embedded(create_app(settings), settings),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):

        async def status(*certificates: str, **headers: str) -> int:
            shown = [("client-cert", value) for value in certificates]
            answer = await client.get(TARGET, headers=[*shown, *headers.items()])
            return answer.status_code

        assert await status(forwarded(billing)) == (200 if is_told else 401)
        assert await status(forwarded(shop)) == 401
        assert await status() == 401
        assert await status(forwarded(shop), forwarded(billing)) == 401
        assert await status(forwarded(shop), **bearer(OWNER)) == 200


def test_the_setting_is_refused_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERUCA_NAMESRV_LISTEN_CLIENT_CERT", "true")

    with pytest.raises(SettingsError) as refused:
        NamesrvSettings.load()

    assert "every client could claim any certificate" in "".join(refused.value.faults)
