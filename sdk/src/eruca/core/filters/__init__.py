"""Filters: by tag and by conditions over properties."""
