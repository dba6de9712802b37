"""The tier's writer: it uploads closed segments while the broker is the master."""
