"""Supervised fine-tuning on training rows with TRL."""
