"""HTTP in, one call of the name server, HTTP out: one module per resource."""
