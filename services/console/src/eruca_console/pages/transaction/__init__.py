"""One transaction: its state, its checks and its message."""
