"""One topic: its queues, settings and groups."""
