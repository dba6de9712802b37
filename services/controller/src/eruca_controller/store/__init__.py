"""Stores of the groups' rows: PostgreSQL, etcd, or a file. Each does compare-and-set."""
