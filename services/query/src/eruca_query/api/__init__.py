"""The HTTP layer: each handler validates, makes one call, and answers."""
