"""What can be set? Packaged YAML."""
