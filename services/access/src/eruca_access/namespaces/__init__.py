"""Requests and answers of callers with a namespace: short names outside, whole names inside."""
