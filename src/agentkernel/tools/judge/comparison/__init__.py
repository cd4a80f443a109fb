"""Comparison of outputs and state with the reference, and the precision rule."""
