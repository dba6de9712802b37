"""Spans of requests and of shared work, and their export."""
