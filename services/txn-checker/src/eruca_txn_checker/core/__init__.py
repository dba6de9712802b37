"""Decisions without I/O, clock or database; everything in the service may import them."""
