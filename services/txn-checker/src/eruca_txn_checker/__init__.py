"""The transaction checker: ask producer groups about transactions that nobody has decided."""
