"""Pure decisions of the broker: no I/O, clock or randomness."""
