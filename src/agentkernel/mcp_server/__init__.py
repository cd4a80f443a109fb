"""The MCP server: the command line's work as tools and resources for coding agents."""
