"""The controller: the arbiter of broker groups. It keeps a row for each, and decides nothing."""
