"""Transactions: half messages, decisions, checks, and what an operator may still do."""
