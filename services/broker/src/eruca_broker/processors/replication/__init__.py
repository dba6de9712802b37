"""Replication: the feed of a master, the follower of a replica, and the proof of lineage."""
