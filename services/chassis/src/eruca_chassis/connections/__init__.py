"""Connections: from a socket's bytes to an exchange and back, in order and within limits."""
