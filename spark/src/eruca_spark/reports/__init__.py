"""Reports on messages: each makes tables of frames, and a picture of the tables."""
