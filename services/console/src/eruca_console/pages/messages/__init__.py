"""Messages: search a topic by key, tag and time, or by id."""
