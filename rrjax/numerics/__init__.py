"""Mathematics that knows nothing of reports: accurate sums, special functions, solvers, random words, sharding."""
