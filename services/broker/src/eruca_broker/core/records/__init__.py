"""Convert messages into records, and records into others: delayed, sent back, rendered as JSON."""
