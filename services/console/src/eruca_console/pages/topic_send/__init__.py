"""A message that somebody sends by hand."""
