"""Orders in PostgreSQL, each with its message: both or neither, without an outbox."""
