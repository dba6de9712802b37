"""One use case per file, RocketMQ's processors."""
