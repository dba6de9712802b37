"""The read model: the brokers' logs as rows in PostgreSQL. Nobody else has SQL here."""
