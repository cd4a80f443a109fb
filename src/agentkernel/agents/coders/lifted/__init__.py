"""Drop-ins whose kernels TorchInductor wrote, lifted into files that stand alone."""
