"""A service announces only a service of its own kind: clients send their keys to that address."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from eruca.contract.names import (
    CHECKERS_NAMESPACE,
    CONTROLLERS_NAMESPACE,
    QUERY_SERVICES_NAMESPACE,
)
from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.rules import bearer, write_rules
from support.services import serving

pytestmark = pytest.mark.anyio

ROLES = {
    CHECKERS_NAMESPACE: "transaction-checker",
    CONTROLLERS_NAMESPACE: "controller",
    QUERY_SERVICES_NAMESPACE: "query-service",
}


async def test_each_service_announces_its_own_kind_and_no_other(tmp_path: Path) -> None:
    roles = {role: [f"service:{role}"] for role in [*ROLES.values(), "broker"]}
    roles["administrator"] = ["user:ann"]
    path = write_rules(tmp_path / "rules.toml", roles=roles)
    settings = NamesrvSettings.model_validate(
        {"kv_file": tmp_path / "kv.json", "ERUCA_AUTH_FILE": str(path), "settle_seconds": 0}
    )
    async with (
        serving(create_app(settings), settings) as (_, address),
        httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as client,
    ):

        async def announced(principal: str, namespace: str) -> int:
            answer = await client.put(
                f"/v1/kv/{namespace}/a", json={"value": "http://m1"}, headers=bearer(principal)
            )
            return answer.status_code

        for namespace, own in ROLES.items():
            assert await announced("user:ann", namespace) == 200
            for role in (*ROLES.values(), "broker"):
                expected = 200 if role == own else 403
                assert await announced(f"service:{role}", namespace) == expected, (namespace, role)
            for role in ROLES.values():
                if role != own:
                    gone = await client.delete(
                        f"/v1/kv/{namespace}/a", headers=bearer(f"service:{role}")
                    )
                    assert gone.status_code == 403
