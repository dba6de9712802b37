"""Dependencies that handlers declare by annotation; ``app.create_app`` provides them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from eruca_namesrv.name_server import NameServer


async def _name_server(request: Request) -> NameServer:  # async: FastAPI runs a def in a thread
    name_server: NameServer = request.app.state.name_server
    return name_server


Names = Annotated[NameServer, Depends(_name_server)]
