"""Access: decide by rules who may do what, and recognise API keys. Pure."""
