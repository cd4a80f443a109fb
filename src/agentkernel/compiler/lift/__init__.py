"""TorchInductor's code of a captured graph as a file that needs torch and triton alone."""
