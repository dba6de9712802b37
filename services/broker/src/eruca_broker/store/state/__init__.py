"""The state on disk: snapshots in the log, the fold of them, and the import from RocketMQ."""
