"""Certificates: written, signed, read and replayed."""
