"""The sandbox: unverified code runs in a process of its own that holds nothing worth taking."""
