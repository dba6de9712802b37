"""The decision of a transaction by an operator: commit it, or roll it back."""
