"""The API keys at the controllers: made, rotated and revoked."""
