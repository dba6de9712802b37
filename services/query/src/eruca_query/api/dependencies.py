"""What a handler asks for, by annotation; ``app.create_app`` put it there."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from eruca_query.service import QueryService


def _service(request: Request) -> QueryService:
    service: QueryService = request.app.state.service
    return service


TheService = Annotated[QueryService, Depends(_service)]
