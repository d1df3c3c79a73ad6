"""Data of estimators: counts, tallies and mixtures; checks of arguments; errors."""
