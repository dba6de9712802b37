"""The console: pages for the people who run and use a cluster."""
