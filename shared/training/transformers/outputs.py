"""What a model gives, tried before it is trained."""

from __future__ import annotations

import torch
from torch.autograd.graph import Node
from transformers import PreTrainedModel

from shared.data import Dataset
from shared.models.transformers import attention_mask


def check_output(net: PreTrainedModel, data: Dataset) -> None:
    """Try the model on two short rows that differ in their last token; all ranks do, of a model that is divided.

    Raises:
        ValueError: if its outputs are not those of the task.
    """
    assert data.index.text is not None  # noqa: S101  # the tasks are those of text
    rows = torch.ones((2, min(4, data.index.text.sequence_length)), dtype=torch.int64, device=net.device)
    rows[1, -1] = 0
    with torch.no_grad():
        net.eval()  # type: ignore[no-untyped-call]
        logits = _logits(net, rows, attention_mask(rows, -1))
    net.train()
    wanted = (2, len(data.index.classes)) if data.index.classes else (*rows.shape, net.config.vocab_size)
    if tuple(logits.shape) != wanted:
        raise ValueError(f"it maps rows {tuple(rows.shape)} to {tuple(logits.shape)}, not to {wanted}")
    rounding = 1e-5 if logits.dtype == torch.float32 else 1e-2
    if not data.index.classes and not torch.allclose(logits[0, :-1], logits[1, :-1], rtol=rounding, atol=rounding):
        raise ValueError("it is no causal model: what it says about a token depends on the tokens that follow")


def has_unused_parameters(net: PreTrainedModel) -> bool:
    """Find out whether some parameters have no part in the outputs; DDP would wait for their gradients for ever."""
    with torch.enable_grad():
        logits = _logits(net, torch.ones((1, 2), dtype=torch.int64, device=net.device))
    seen, reached, nodes = set[Node](), set[int](), [logits.grad_fn]
    while nodes:  # the gradients themselves would take the memory of a second model
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            reached.add(id(getattr(node, "variable", None)))
            nodes += [following for following, _ in node.next_functions]
    return any(parameter.requires_grad and id(parameter) not in reached for parameter in net.parameters())


def _logits(net: PreTrainedModel, rows: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    logits: torch.Tensor = net(input_ids=rows, attention_mask=mask).logits
    return logits
