"""Transactions: half messages, decisions, and answers to checks."""
