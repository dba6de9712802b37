"""Send many rows: read them, convert them to messages, and show the progress."""
