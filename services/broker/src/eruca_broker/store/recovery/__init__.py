"""Opening a store: what can be believed, and what is made anew."""
