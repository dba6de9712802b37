"""Messages: sent and received, single and in batches, as objects and as bytes."""
