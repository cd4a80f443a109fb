"""What is a small model taught with: modules made from nothing, and kernels that are wrong."""
