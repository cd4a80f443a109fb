"""Frozen values that every layer shares: problem, plan, candidate, verdict, profile."""
