"""The read model: the brokers' logs as rows in PostgreSQL. Only this package writes them."""
