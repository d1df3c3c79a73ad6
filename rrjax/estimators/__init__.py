"""Estimators, the likelihood and its certificate, metrics, and a catalogue of estimators and metrics by name."""
