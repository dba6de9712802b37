"""The key index: its layout, its chains, and what it does not have yet."""
