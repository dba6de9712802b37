"""Consuming: who is a member, who waits, who gets which message, and when again."""
