"""Parallel steps: how the input is divided, who gets which mini batch, and what becomes of the results."""
