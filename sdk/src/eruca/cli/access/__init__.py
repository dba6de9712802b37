"""API keys and rules on the command line: in a file, or at the controllers."""
