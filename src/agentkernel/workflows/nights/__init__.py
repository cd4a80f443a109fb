"""How does a night over a zoo go from its models to verified kernels in them?"""
