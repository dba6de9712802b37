"""The undecided transactions: parked ones, and those that wait for a decision."""
