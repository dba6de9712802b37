"""Files of any kind: directories, locks, descriptors, flushing, and what a disk refuses."""
