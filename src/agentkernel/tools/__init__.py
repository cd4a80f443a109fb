"""Deterministic tools that load, judge and measure; typed input to frozen results."""
