"""Sending many rows: reading them, making messages of them, and telling how far it is."""
