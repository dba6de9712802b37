"""Routing: where a topic's queues are, which one is next, and which brokers are avoided."""
