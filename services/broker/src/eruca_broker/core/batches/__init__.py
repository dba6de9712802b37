"""Batches of records as a producer sends them: proved whole, then stamped."""
