"""The consume queues: their files, their damage, and how they lag."""
