"""Sending, pulling and finding messages."""
