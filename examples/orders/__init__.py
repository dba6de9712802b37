"""Orders in PostgreSQL, each with its message, both or neither, and with just one parcel."""
