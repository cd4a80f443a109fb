"""`agentkernel bench` and `redteam`: benchmarks of a coder and of the judge."""
