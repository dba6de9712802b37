"""Open a store: decide which files can be trusted, and rebuild the others."""
