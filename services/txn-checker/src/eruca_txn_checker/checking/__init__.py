"""The work: granting checks, asking producers, and telling brokers what they answer."""
