"""What do these tests share? A GPU that only exists in numbers (`simulated_gpu`)."""
