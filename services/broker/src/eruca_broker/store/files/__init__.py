"""Files of any kind: directories, locks, descriptors, flushing, and errors of the disk."""
