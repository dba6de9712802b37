"""The cluster for services: requests that are models, a broker's resources, its log."""

from __future__ import annotations

from eruca.aio.cluster.broker_api import BrokerApi
from eruca.aio.cluster.requests import parsed, send_model
from eruca.aio.log_follower import AsyncLogFollower

__all__ = ["AsyncLogFollower", "BrokerApi", "parsed", "send_model"]
