"""The log: recognising valid records, recovery, retention and scrubbing."""
