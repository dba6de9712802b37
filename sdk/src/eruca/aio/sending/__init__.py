"""Sending: lanes group messages into batches, and batches are retried at other brokers."""
