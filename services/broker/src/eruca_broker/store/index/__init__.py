"""The key index: its files, for writing once and for reading."""
