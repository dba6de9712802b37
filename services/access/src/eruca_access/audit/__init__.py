"""The audit: records of who did what, from the gate of each service into a broker's log."""
