"""Backups of a broker's log, and restored stores: DESIGN.md says what they consist of."""
