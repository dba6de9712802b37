"""Decide whether a request is admitted: hosts, sites, rights and budgets."""
