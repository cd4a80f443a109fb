"""Verified kernels applied to a live model, and the check that the whole model gains by them."""
