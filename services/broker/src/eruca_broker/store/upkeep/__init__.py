"""Maintain a store while it serves."""
