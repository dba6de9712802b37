"""Eruca shown at work on real data: ``python -m demo.flights``."""
