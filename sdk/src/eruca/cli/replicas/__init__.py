"""An operator's changes of broker groups."""
