"""Transactions: half messages, decisions, checks, and an operator's options."""
