"""A group at one broker as of an earlier offset of its log."""
