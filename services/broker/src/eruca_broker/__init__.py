"""The broker: one append-only commit log, and projections of it."""
