"""The key-value table: small configuration shared by clients and brokers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final, TypeAlias

from fastapi import Body, Path

from eruca.contract.access import ANY, ResourceKind, Right
from eruca.contract.errors import (
    KeyNotFoundError,
    NameServerSettlingError,
    TooLargeError,
    UnavailableError,
)
from eruca.contract.limits import KV_NAME_SIZE_MAX
from eruca.contract.names import (
    CHECKERS_NAMESPACE,
    CONTROLLERS_NAMESPACE,
    KV_NAME_PATTERN,
    QUERY_SERVICES_NAMESPACE,
)
from eruca.contract.routes import KvEntry, KvNamespace, KvValue
from eruca_access.needs import on_cluster, on_log, on_topic, to
from eruca_chassis.admission.gate import Access, CallersAccess
from eruca_chassis.admission.needs import KNOWN, Demand
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_namesrv.api import examples
from eruca_namesrv.name_server import ANNOUNCED, NameServer

Namespace: TypeAlias = Annotated[
    str,
    Path(
        min_length=1,
        max_length=KV_NAME_SIZE_MAX,
        pattern=KV_NAME_PATTERN,
        examples=["ORDER_TOPIC_CONFIG"],
    ),
]
Key: TypeAlias = Annotated[
    str,
    Path(min_length=1, max_length=KV_NAME_SIZE_MAX, pattern=KV_NAME_PATTERN, examples=["flights"]),
]

_WRITING: Final = to(Right.PRODUCE, Right.ADMINISTER, cluster=True)
_OF_ITS_KIND: Final = {
    CHECKERS_NAMESPACE: on_log(Right.ADMINISTER),
    CONTROLLERS_NAMESPACE: Demand((Right.ADMINISTER,), ResourceKind.BROKER, ANY),
    QUERY_SERVICES_NAMESPACE: on_topic(ANY, Right.CONSUME),
}
"""The right without which no service could serve that announces itself in a namespace.

Clients send their keys to an announced address. So a service may announce only a service of its own
kind: a stolen key of a query service must not become a controller's address.
"""
assert _OF_ITS_KIND.keys() == ANNOUNCED, "each announced service has its right"
router = Router(prefix="/v1/kv", tags=["key-value table"])


@router.get(
    "/{namespace}",
    operation_id="listKv",
    needs=KNOWN,
    summary="List a namespace's entries",
    responses=answer(examples.KV_NAMESPACE) | problems(NameServerSettlingError),
)
async def list_kv(
    namespace: Namespace, names: Part[NameServer], access: CallersAccess
) -> KvNamespace:
    """Return every key and value; an empty object if the namespace does not exist.

    Namespaces with addresses of services are open to every known caller. All others need the right
    to query the cluster: their entries name topics.
    """
    _require_reading(access, namespace)
    return KvNamespace(namespace=namespace, entries=names.kv_entries(namespace))


@router.get(
    "/{namespace}/{key}",
    operation_id="getKv",
    needs=KNOWN,
    summary="Get one value",
    responses=answer(examples.KV_ENTRY) | problems(KeyNotFoundError, NameServerSettlingError),
)
async def get_kv(
    namespace: Namespace, key: Key, names: Part[NameServer], access: CallersAccess
) -> KvEntry:
    """Return one entry; it needs the same right as the list of its namespace."""
    _require_reading(access, namespace)
    return KvEntry(namespace=namespace, key=key, value=names.kv_value(namespace, key))


@router.put(
    "/{namespace}/{key}",
    operation_id="putKv",
    needs=_WRITING,
    summary="Set a value",
    responses=answer(examples.KV_ENTRY) | problems(TooLargeError, UnavailableError),
)
async def put_kv(
    namespace: Namespace,
    key: Key,
    value: Annotated[KvValue, Body(examples=[examples.KV_VALUE])],
    names: Part[NameServer],
    access: CallersAccess,
) -> KvEntry:
    """Set a value. It is on this name server's disk when the answer is sent.

    Name servers do not talk to each other: set the value on each of them.
    """
    _require_writing(access, namespace)
    await names.put_kv(namespace, key, value.value)
    return KvEntry(namespace=namespace, key=key, value=value.value)


@router.delete(
    "/{namespace}/{key}",
    operation_id="deleteKv",
    needs=_WRITING,
    summary="Remove a key",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(KeyNotFoundError, UnavailableError),
)
async def delete_kv(
    namespace: Namespace, key: Key, names: Part[NameServer], access: CallersAccess
) -> None:
    """Remove an entry. It is gone from this name server's disk when the answer is sent."""
    _require_writing(access, namespace)
    await names.delete_kv(namespace, key)


def _require_reading(access: Access, namespace: str) -> None:
    if namespace not in ANNOUNCED:
        access.require(on_cluster(Right.QUERY, Right.ADMINISTER))


def _require_writing(access: Access, namespace: str) -> None:
    access.require(_OF_ITS_KIND.get(namespace, on_cluster(Right.ADMINISTER)))
