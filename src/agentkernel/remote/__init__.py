"""Judging, timing and searching on another machine, over one connection of ssh."""
