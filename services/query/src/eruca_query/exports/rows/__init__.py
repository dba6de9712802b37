"""Convert pulled records into an answer's bytes: pure, by columns; runs in the workers.

A block of records (:mod:`.blocks`) becomes a batch of columns (:mod:`eruca.rows`), and the batch a
piece of the answer (:mod:`.encoders`).
"""
