"""Builders of the models of the packaged zoos."""
