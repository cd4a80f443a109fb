"""`agentkernel train`: the commands that make the data of a small model and train it."""
