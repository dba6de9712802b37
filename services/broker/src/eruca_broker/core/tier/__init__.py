"""Decisions about the tier: manifests, its next step, and where a queue's messages are in it."""
