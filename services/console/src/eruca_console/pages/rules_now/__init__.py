"""The rules at the controllers as they are now, entry by entry."""
