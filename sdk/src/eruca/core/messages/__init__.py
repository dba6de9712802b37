"""Messages: to send and received, alone and in batches, as objects and as bytes."""
