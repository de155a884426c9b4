"""What a model gives, tried before it is trained."""

from __future__ import annotations

import torch
from torch.autograd.graph import Node
from transformers import PreTrainedModel

from shared.data import Dataset, TextEncoding
from shared.models.decoder import document_mask
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
    if data.index.text.separator >= 0:
        _check_documents(net, data.index.text, rounding)


def _check_documents(net: PreTrainedModel, text: TextEncoding, rounding: float) -> None:
    """Try whether a model keeps documents apart, and is otherwise the same, on rows as long as the data's.

    Raises:
        ValueError: if a document depends on the one before, or on where it stands, or if the mask takes the place of
            another one, as that of a window.
    """
    length, middle = text.sequence_length, text.sequence_length // 2
    if length < 4:
        raise ValueError(f"rows of {length} tokens are too short to keep documents apart; prepare 4 at least")
    row = (torch.arange(length, device=net.device) * 7 + 1) % max(2, min(text.vocabulary, 200))
    row[row == text.separator] = (text.separator + 1) % text.vocabulary
    two, other = row.clone(), row.clone()
    two[middle] = other[middle] = text.separator
    other[: middle - 1] = row[1:middle]
    with torch.no_grad():
        net.eval()  # type: ignore[no-untyped-call]
        plain, served = _logits(net, row[None]), _logits(net, two[None, middle:])
        alone, first, second = (
            _logits(net, one[None], document_mask(one[None], text.separator)) for one in (row, two, other)
        )
    net.train()

    def alike(one: torch.Tensor, same: torch.Tensor) -> bool:
        return torch.allclose(one, same, rtol=10 * rounding, atol=10 * rounding)

    behind = first[:, middle:]
    if not (alike(plain, alone) and alike(behind, second[:, middle:]) and alike(behind, served)):
        raise ValueError(
            "it cannot keep documents apart, as the data asks for: its layers are recurrent or have a window, its "
            "attention takes no mask, or its positions are counted from the beginning of a row. Prepare the text with "
            "documents joined, or train with train_fsdp"
        )


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
