"""Mathematics independent of reports: accurate sums, special functions, solvers, random words, sharding."""
