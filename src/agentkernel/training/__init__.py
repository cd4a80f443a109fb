"""Training of small models on judged kernels: data, fine-tuning, reinforcement, evaluation."""
