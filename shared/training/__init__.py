"""What the trainers share. This module and `arguments` need no framework: some refusals come before it is imported."""

from shared.training.arguments import STOPPED, BatchPlan, add_arguments, add_decoder_arguments, plan_batches

__all__ = ["STOPPED", "BatchPlan", "add_arguments", "add_decoder_arguments", "plan_batches"]
