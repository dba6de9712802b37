"""The scheduled messages, in the order of their delivery times."""
