"""Scheduling of a nightly run's jobs, on this machine or on a Ray cluster."""
