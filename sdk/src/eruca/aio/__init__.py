"""The SDK's asynchronous shell, written by hand; one file per thing a user makes."""
