"""A broker's log for RocketMQ slaves."""
