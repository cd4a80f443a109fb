"""Packaged model zoos."""
