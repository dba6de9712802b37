"""The key-value table: small configuration shared by clients and brokers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Body, Path

from eruca.contract.errors import (
    KeyNotFoundError,
    NameServerSettlingError,
    TooLargeError,
    UnavailableError,
)
from eruca.contract.limits import KV_NAME_SIZE_MAX
from eruca.contract.names import KV_NAME_PATTERN
from eruca.contract.routes import KvEntry, KvNamespace, KvValue
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.parts import Part
from eruca_namesrv.api import examples
from eruca_namesrv.name_server import NameServer

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

router = APIRouter(prefix="/v1/kv", tags=["key-value table"])


@router.get(
    "/{namespace}",
    operation_id="listKv",
    summary="List a namespace's entries",
    responses=answer(examples.KV_NAMESPACE) | problems(NameServerSettlingError),
)
async def list_kv(namespace: Namespace, names: Part[NameServer]) -> KvNamespace:
    """Return every key and value; an empty object if the namespace does not exist."""
    return KvNamespace(namespace=namespace, entries=names.kv_entries(namespace))


@router.get(
    "/{namespace}/{key}",
    operation_id="getKv",
    summary="Get one value",
    responses=answer(examples.KV_ENTRY) | problems(KeyNotFoundError, NameServerSettlingError),
)
async def get_kv(namespace: Namespace, key: Key, names: Part[NameServer]) -> KvEntry:
    """Return one entry."""
    return KvEntry(namespace=namespace, key=key, value=names.kv_value(namespace, key))


@router.put(
    "/{namespace}/{key}",
    operation_id="putKv",
    summary="Set a value",
    responses=answer(examples.KV_ENTRY) | problems(TooLargeError, UnavailableError),
)
async def put_kv(
    namespace: Namespace,
    key: Key,
    value: Annotated[KvValue, Body(examples=[examples.KV_VALUE])],
    names: Part[NameServer],
) -> KvEntry:
    """Set a value. It is on this name server's disk when the answer is sent.

    Name servers do not talk to each other: set the value on each of them.
    """
    await names.put_kv(namespace, key, value.value)
    return KvEntry(namespace=namespace, key=key, value=value.value)


@router.delete(
    "/{namespace}/{key}",
    operation_id="deleteKv",
    summary="Remove a key",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(KeyNotFoundError, UnavailableError),
)
async def delete_kv(namespace: Namespace, key: Key, names: Part[NameServer]) -> None:
    """Remove an entry. It is gone from this name server's disk when the answer is sent."""
    await names.delete_kv(namespace, key)
