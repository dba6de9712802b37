"""The cluster as a client knows it: routes, servers, and a function for each request."""
