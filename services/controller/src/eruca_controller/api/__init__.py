"""HTTP routes, one module per resource: parse the request, make one call, render the answer."""
