"""Programs that show how something is done, each to be read and run."""
