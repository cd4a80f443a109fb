"""`agentkernel chat`: a session about one module at a terminal, from a pipe or from a script."""
