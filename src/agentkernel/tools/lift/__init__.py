"""From a captured graph to TorchInductor's code, and from that code to plain Triton."""
