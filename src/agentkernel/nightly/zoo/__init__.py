"""Model zoos: from a YAML file to models that can be built and called."""
