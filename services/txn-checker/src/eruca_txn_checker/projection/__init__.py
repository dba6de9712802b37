"""The service's data in PostgreSQL: its tables, and the brokers' logs folded into them."""
