"""Privacy: clients for real collection, what an audit proves of them, what shuffling adds."""
