"""Exports: queues of the brokers as Arrow and NDJSON, one record batch at a time.

What there is to read is fixed by a plan; the rows are pulled from the brokers' logs and become
columns with no Python per message. Nothing is stored here, and nothing is waited for.
"""
