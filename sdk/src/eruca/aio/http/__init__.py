"""HTTP as the SDK speaks it: the seam, and the client for the hot routes."""
