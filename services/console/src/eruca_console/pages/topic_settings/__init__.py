"""The settings of a topic: create one, or change them, after seeing what would change."""
