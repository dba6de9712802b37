"""Deliveries: consuming without a session, message by message."""
