"""The volume of a topic over time, and its newest messages."""
