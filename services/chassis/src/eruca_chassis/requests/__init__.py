"""Requests: limits on their content, parsing, and the errors for invalid ones."""
