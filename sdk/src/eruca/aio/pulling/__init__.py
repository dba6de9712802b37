"""Pulling: prefetch from each broker, beginning at the consumer's start."""
