"""Privacy: clients for real collection, audits of clients, and amplification by shuffling."""
