"""The brokers and their replicas: roles, epochs, and who is in sync."""
