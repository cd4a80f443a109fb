"""The static policy: what the source of a candidate may contain, read before it runs."""
