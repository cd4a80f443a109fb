"""Proof of execution: which kernels and operators ran, and what else the candidate did."""
