"""The query service: every message of every broker, by id, key, tag and time; its timeline."""
