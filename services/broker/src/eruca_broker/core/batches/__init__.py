"""Batches of records from a producer: verified as a whole, then stamped."""
