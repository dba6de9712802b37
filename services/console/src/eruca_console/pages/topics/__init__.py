"""The list of topics."""
