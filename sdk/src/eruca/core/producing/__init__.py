"""Producing: what travels together, what came of it, and transactions."""
