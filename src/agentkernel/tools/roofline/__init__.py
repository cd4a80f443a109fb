"""The roofline model: cost of ops, bounds and estimates, and the chart."""
