"""The reset of a group's position in a topic."""
