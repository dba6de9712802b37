"""The state on disk: snapshots in the log, the fold of them, and what RocketMQ has left."""
