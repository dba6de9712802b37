"""The name server: live brokers, and the queues each topic has on them. Soft state only."""
