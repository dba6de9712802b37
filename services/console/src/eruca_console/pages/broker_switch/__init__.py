"""The switch of a broker's master to another replica that is in sync."""
