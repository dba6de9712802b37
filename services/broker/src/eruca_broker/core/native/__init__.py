"""Compiled code: the loops over records, properties and keys."""
