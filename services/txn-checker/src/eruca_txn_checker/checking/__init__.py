"""The work: request checks, ask producers, and forward their answers to brokers."""
