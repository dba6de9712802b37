"""Processes that turn messages into rows, so that exports do not delay other requests.

A *step* (:mod:`.steps`) pulls some messages and builds their rows. It does not depend on earlier
steps, so any worker can do any step. A worker (:mod:`.worker`) builds the rows of one step at a
time, and sends them to the reader itself when it is their turn. The service has a few workers
(:mod:`.pool`), and exchanges messages with them (:mod:`.channel`).
"""
