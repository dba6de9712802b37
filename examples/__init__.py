"""Example programs, each to be read and run."""
