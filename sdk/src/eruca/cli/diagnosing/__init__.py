"""The doctor's probes and findings."""
