"""Processes that turn messages into rows, so that exports keep nobody else waiting.

A *step* (:mod:`.steps`) is a pull of some messages, and what rows are made of them. It depends on
nothing before it, so any worker can do any step; a worker (:mod:`.worker`) makes the rows of one at
a time, and sends them to the reader itself when it is told that it is their turn. The service has a
few workers (:mod:`.pool`), and what it and they tell each other are words (:mod:`.channel`).
"""
