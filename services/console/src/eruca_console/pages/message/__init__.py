"""One message: its body, its life line, and what each group has done with it."""
