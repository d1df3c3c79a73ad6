"""What estimators are given: arguments and their checks, counts, tallies, mixtures, rates, errors."""
