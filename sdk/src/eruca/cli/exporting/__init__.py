"""Export a topic from the query service to a file, part by part."""
