"""The dead letters of a group: look at them, choose some, redrive them."""
