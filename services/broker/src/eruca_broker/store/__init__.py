"""The store's files: the commit log, its projections, and their recovery."""
