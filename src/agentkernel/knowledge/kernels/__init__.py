"""Which kernels does the project show as examples? One a file, data for the index."""
