"""What training a model in parts needs: who holds which part, their optimizer, evaluation, checkpoints, final model.

This module needs no framework: what is wrong with the degrees is said before torch is imported.
"""

from shared.training.fsdp.layout import RankLayout, plan_layout

__all__ = ["RankLayout", "plan_layout"]
