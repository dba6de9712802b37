"""Background work of the broker."""
