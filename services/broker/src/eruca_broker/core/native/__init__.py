"""What is compiled: the loops over records, properties and keys."""
