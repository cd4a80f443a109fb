"""Packaged configuration: YAML defaults, targets, model presets, prices and zoos."""
