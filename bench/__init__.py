"""Benchmarks: speed as a ratio to a raw limit taken in the same run; see README.md."""
