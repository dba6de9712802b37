"""Read the log: records, runs and look-ups, here and from the tier."""
