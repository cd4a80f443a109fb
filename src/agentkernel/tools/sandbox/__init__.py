"""Where may unverified code run? In a process of its own that holds nothing worth taking."""
