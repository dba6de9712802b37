"""Properties in the texts of many records at once: names, values, hashes."""
