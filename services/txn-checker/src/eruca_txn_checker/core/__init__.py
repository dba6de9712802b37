"""What is decided without I/O, clock or database; everything in the service may import it."""
