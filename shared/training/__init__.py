"""What the trainers share. This module and `arguments` need no framework: some refusals come before it is imported."""

from shared.training.arguments import BatchPlan, add_arguments, add_decoder_arguments, plan_batches

__all__ = ["BatchPlan", "add_arguments", "add_decoder_arguments", "plan_batches"]
