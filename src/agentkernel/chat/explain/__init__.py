"""Explanation of a Triton file in prose, from its text; nothing is run."""
