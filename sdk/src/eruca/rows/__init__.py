"""Records as Arrow columns, without Python code per message: the columns of exports. Pure.

Records that lie back to back are split into their fixed fields (:mod:`.record_fields`) and their
properties (:mod:`.property_fragments`), and become a batch of columns (:mod:`.message_batches`).
The query service's exports and Spark's reader of segments build their rows here.

Requires the extras ``arrow`` and ``fast`` (pyarrow, numpy).
"""
