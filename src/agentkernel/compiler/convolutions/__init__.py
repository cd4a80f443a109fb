"""Convolutions as kernels of our own."""
