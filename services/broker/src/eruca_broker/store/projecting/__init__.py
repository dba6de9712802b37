"""Keep the projections of the log: feed consume queues and key index, and checkpoint them."""
