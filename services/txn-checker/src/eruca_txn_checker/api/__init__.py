"""HTTP in, one call, HTTP out: a module for each resource."""
