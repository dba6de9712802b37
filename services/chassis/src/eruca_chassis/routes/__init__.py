"""Declare the routes of a service, and the parts that they work with."""
