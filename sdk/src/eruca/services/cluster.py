"""The cluster for services: requests that are models, broker resources, logs, any instance."""

from __future__ import annotations

from eruca.aio.cluster.broker_api import BrokerApi
from eruca.aio.cluster.instances import Instances
from eruca.aio.cluster.requests import checked_request, parsed, send_model
from eruca.aio.log_follower import AsyncLogFollower

__all__ = ["AsyncLogFollower", "BrokerApi", "Instances", "checked_request", "parsed", "send_model"]
