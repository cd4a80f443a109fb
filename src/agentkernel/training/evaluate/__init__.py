"""Evaluation of a model on held-out modules."""
