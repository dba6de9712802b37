"""Consuming: held messages, results of handlers, retries, and the division of queues."""
