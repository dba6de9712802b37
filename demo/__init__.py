"""The demonstration: Eruca at work on real data, with ``python -m demo.flights``."""
