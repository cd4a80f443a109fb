"""`agentkernel knowledge`: the commands that search the knowledge base and maintain it."""
