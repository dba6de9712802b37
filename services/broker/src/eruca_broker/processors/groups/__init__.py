"""Consumer groups: members, locks, positions, and those who watch them."""
