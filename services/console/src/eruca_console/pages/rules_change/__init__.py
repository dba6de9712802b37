"""A change of the rules at the controllers: of one entry, or back to an earlier version."""
