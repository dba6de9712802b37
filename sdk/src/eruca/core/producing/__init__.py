"""Producing: batches of messages, their results, and transactions."""
