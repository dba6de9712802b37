"""Programs that work at one broker with replicas while its master changes, and what they saw."""
