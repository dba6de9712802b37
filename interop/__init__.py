"""Eruca and Apache RocketMQ read each other's stores: the referee of the on-disk format.

RocketMQ's own broker, name server and client are fetched from Maven Central into a cache outside
the repository, and run unchanged. Each side writes a store of real flights, the other opens a copy
of it, and every message, offset, key and id is compared. Run it with ``make interop``.
"""
