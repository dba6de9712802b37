"""The rules at the controllers, version by version."""
