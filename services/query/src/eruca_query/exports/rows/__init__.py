"""From pulled records to an answer's bytes: pure, by columns, and at work in the workers.

A block of records (:mod:`.blocks`) is read by its fixed fields (:mod:`.record_fields`) and by its
properties (:mod:`.property_fragments`), becomes a batch of columns (:mod:`.message_batches`), and
the batch a piece of the answer (:mod:`.encoders`).
"""
