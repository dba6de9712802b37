"""The frame of all pages: routes, rendering, live updates, log-in, files."""
