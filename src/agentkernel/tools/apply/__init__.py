"""How do verified kernels get into a model and out again, and does the whole gain by them?"""
