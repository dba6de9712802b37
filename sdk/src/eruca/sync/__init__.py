"""The SDK's synchronous shell, generated from ``eruca.aio``."""
