"""The text of a drop-in: its head, constructor, input checks, forward and gradients."""
