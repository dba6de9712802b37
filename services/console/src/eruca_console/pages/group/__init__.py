"""One group: its lag by queue, its members and what they read, its unfinished messages."""
