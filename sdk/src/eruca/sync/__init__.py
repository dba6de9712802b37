"""The SDK's synchronous API, generated from ``eruca.aio``."""
