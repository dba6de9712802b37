"""Exports: queues of the brokers as Arrow and NDJSON, one record batch at a time.

What there is to read is fixed by a plan; the messages are pulled from the brokers' logs by workers
(:mod:`.workers`) and become columns with no Python per message (:mod:`.rows`). Nothing is stored
here, and nothing is waited for.
"""
