"""Consuming: what is held, what is done with, what becomes of failures, who reads what."""
