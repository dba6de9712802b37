"""The SDK's HTTP: the transport interface, and the client for the hot routes."""
