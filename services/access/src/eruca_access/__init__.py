"""The gate of Eruca's services: it decides who may do what, by keys and rules in a file."""
