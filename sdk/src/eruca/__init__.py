"""Eruca: RocketMQ's message model over HTTP."""
