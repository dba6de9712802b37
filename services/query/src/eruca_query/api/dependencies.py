"""What a handler asks for, by annotation; ``app.create_app`` put it there."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from eruca import AsyncClient
from eruca_query.settings import QuerySettings


def _client(request: Request) -> AsyncClient:
    client: AsyncClient = request.app.state.client
    return client


def _settings(request: Request) -> QuerySettings:
    settings: QuerySettings = request.app.state.settings
    return settings


Client = Annotated[AsyncClient, Depends(_client)]
Settings = Annotated[QuerySettings, Depends(_settings)]
