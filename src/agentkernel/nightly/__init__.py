"""Nightly optimization of a model zoo: regions, jobs, verified kernels, and the morning's page."""
