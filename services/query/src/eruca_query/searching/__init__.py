"""Answering questions: what the rows say, and what the brokers' logs say behind them."""
