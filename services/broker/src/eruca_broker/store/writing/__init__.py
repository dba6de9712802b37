"""Append to the log, and publish what was appended."""
