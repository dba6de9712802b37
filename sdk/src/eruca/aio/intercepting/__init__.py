"""Producers and consumers with interceptors: subclasses that a client makes if it has any.

Without interceptors nothing of this package is used, so they cost nothing. A call goes through
:class:`~eruca.aio.intercepting.blocks.Blocks`, which enters and leaves the interceptors' contexts.
"""
