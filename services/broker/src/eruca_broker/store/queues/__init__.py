"""The consume queues: their files, damage in them, and their lag."""
