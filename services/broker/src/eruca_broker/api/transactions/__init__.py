"""Transactions: begin, decide, check and show them."""
