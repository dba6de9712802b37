"""Routing: the queues of a topic, the choice of the next one, and the avoided brokers."""
