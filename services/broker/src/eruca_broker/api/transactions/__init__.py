"""Transactions: beginning and deciding them, checking them, looking at them."""
