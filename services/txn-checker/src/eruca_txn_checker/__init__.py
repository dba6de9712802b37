"""The transaction checker: asks producer groups what became of transactions nobody decided."""
