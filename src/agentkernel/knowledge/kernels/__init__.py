"""Kernel examples, one a file: data for the knowledge base, read as text and never imported."""
