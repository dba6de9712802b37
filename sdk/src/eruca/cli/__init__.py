"""The command line: ``eruca``."""
