"""The hot routes: requests that a broker lives by, read and answered without FastAPI."""
