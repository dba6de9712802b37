"""Files that survive crashes: directories, locks, flushes, replacements."""
