"""Requests of the small HTTP client, and scripts of servers that keep it waiting."""

from __future__ import annotations

import asyncio

from eruca.aio.http.http1 import Http1Transport
from support.http_peers import Script, read_request

SECONDS = 10.0  # enough for anything that does not wait on purpose


async def get(client: Http1Transport, url: str, *, timeout: float = SECONDS) -> bytes:
    return (await client.request("GET", url, "/", timeout=timeout)).body


async def post(client: Http1Transport, url: str, *body: bytes, timeout: float = SECONDS) -> bytes:
    return (await client.request("POST", url, "/", body=body, timeout=timeout)).body


def trickling(data: bytes) -> Script:
    """Return a script that says *data* over and over, and never comes to an end."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)

    return script


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()  # until the client has had enough
