"""Two versions of the rules at the controllers, line by line and by their effect."""
