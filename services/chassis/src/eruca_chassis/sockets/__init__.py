"""The addresses on which a service listens, and TLS on them."""
