"""Processes that turn messages into rows, so that exports keep nobody else waiting.

A *step* (:mod:`.steps`) is a pull of some messages and what rows are made of them. It depends on
nothing before it, so any worker can do any step; a worker does one at a time (:mod:`.worker`), and
the service has a few of them (:mod:`.pool`).
"""
