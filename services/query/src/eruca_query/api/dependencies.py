"""Dependencies that handlers declare by annotation; ``app.create_app`` provides them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from eruca_query.service import QueryService


async def _service(request: Request) -> QueryService:  # async: else FastAPI calls it in a thread
    service: QueryService = request.app.state.service
    return service


TheService = Annotated[QueryService, Depends(_service)]
