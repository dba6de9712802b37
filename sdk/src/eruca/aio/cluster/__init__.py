"""The cluster from a client's view: routes, servers, and one function for each request."""
