"""The settings of a group: create one, change them, or pause it."""
