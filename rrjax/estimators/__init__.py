"""Estimators, their likelihood and its certificate, metrics, and the catalogue of all of them by name."""
