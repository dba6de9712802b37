"""Exporting a topic: from the query service, part by part, to a file."""
