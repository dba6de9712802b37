"""Run a service: its settings, its command line, its process."""
