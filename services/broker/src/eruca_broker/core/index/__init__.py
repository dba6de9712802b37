"""The key index: its layout, its chains, and the keys that are not in it yet."""
