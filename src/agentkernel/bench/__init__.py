"""Benchmarks of coders on suites of problems, and of the judge on a red-team corpus."""
