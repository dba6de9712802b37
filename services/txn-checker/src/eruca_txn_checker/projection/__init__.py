"""What the service knows, in PostgreSQL: its tables, and the brokers' logs folded into them."""
