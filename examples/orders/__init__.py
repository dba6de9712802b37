"""Orders in PostgreSQL: each commits with its message, and results in exactly one parcel."""
