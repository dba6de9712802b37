"""``config/``: JSON files, RocketMQ's and our own, beside the log."""
