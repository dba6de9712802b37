"""The overview: brokers, their faults and copies, and the groups that are behind."""
