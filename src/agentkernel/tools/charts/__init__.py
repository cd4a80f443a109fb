"""Charts: one value for every kind of them, and its drawing as SVG."""
