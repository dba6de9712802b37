"""Consuming: members, held pulls, leases, filters, and retries."""
