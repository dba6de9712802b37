"""The audit records: who did what to the cluster, and who was refused."""
