"""Sending: messages gather in lanes, and batches go where they are taken."""
