"""What estimators take: counts, tallies and mixtures; checks of arguments; errors."""
