"""Read queues as pulls do."""
