"""Code that several services share and that has nothing to do with messaging."""
