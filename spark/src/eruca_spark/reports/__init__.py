"""Reports on messages: each computes tables from frames, and a picture of the tables."""
