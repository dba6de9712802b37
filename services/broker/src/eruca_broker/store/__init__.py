"""Files: the commit log, its projections, and how they are recovered."""
