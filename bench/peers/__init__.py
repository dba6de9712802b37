"""``make peers``: Eruca and other messaging systems under the same load, in one run."""
