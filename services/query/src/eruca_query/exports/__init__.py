"""Exports: queues of the brokers as Arrow and NDJSON, one record batch at a time.

A plan fixes the messages to read. Workers (:mod:`.workers`) pull them from the brokers' logs and
turn them into columns without Python code per message (:mod:`.rows`). An export stores nothing and
does not wait for new messages.
"""
