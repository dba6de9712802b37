"""Convert pulled records into an answer's bytes: pure, by columns; runs in the workers.

A block of records (:mod:`.blocks`) is split into its fixed fields (:mod:`.record_fields`) and its
properties (:mod:`.property_fragments`), becomes a batch of columns (:mod:`.message_batches`), and
the batch a piece of the answer (:mod:`.encoders`).
"""
