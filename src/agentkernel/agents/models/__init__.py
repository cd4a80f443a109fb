"""Language models behind one protocol: at an endpoint, in this process, or from a record."""
