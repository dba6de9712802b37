"""Consumer groups: members, locks, positions, and the requests that watch them."""
