"""Answer questions from the rows, and from the brokers' logs that the rows have not reached."""
