"""Models that answer questions: at an endpoint, in this process, or from a record."""
