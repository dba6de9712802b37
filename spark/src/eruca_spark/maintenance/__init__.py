"""Maintenance of a lake: small files are merged, old days are deleted; DESIGN.md has the states."""
