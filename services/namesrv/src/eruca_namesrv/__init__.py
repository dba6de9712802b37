"""The name server: who is alive, and which queues a topic has where. Soft state only."""
