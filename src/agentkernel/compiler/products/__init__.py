"""Matrix products with their epilogues as own Triton kernels."""
