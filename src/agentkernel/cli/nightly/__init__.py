"""`agentkernel batch` and `library`: runs over many problems or a zoo, and the kernels kept."""
