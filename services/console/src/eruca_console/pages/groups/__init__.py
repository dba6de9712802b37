"""The list of groups, with their lag."""
