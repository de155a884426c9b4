"""The table of VM sizes agrees with itself, with what names say, and with the documents that it comes from."""

from __future__ import annotations

import re

import pytest

from allranks.sizes import VMSize, all_sizes, find_size, nccl_variables, with_infiniband

EVERY = list(all_sizes().values())
_PARTS = re.compile(r"Standard_[A-Z]+\d+(?:-\d+)?(?P<features>[a-z]*)")


@pytest.mark.parametrize("size", EVERY, ids=lambda size: size.name)
def test_an_r_in_the_name_is_rdma_and_nothing_else_is(size: VMSize) -> None:
    match = _PARTS.match(size.name)
    assert match is not None
    assert ("r" in match["features"]) == (size.links > 0)


@pytest.mark.parametrize("size", EVERY, ids=lambda size: size.name)
def test_every_size_is_whole(size: VMSize) -> None:
    assert size.source.startswith("https://learn.microsoft.com/azure/virtual-machines/")
    assert (size.gpus > 0) == bool(size.gpu) == (size.gpu_memory > 0)
    assert size.links in (0, 1, size.gpus), "one link for the node, or one for each GPU"
    assert (size.link_speed > 0) == (size.links > 0)
    assert size.link_speed in (0, 56, 100, 200, 400, 800), "FDR, EDR, HDR, NDR, XDR"
    assert size.infiniband or not size.relaxed_ordering
    assert re.fullmatch(r"(20\d\d-\d\d-\d\d)?", size.retired)


@pytest.mark.parametrize(
    ("name", "gpus", "memory", "infiniband"),
    [
        ("Standard_ND96isr_H100_v5", 8, 80, 3200),
        ("STANDARD_ND96ASR_V4", 8, 40, 1600),  # the guide's 200 Gb/s are those of each GPU
        ("Standard_ND96amsr_A100_v4", 8, 80, 1600),
        ("Standard_ND40rs_v2", 8, 32, 100),
        ("Standard_NC24rs_v3", 4, 16, 56),
        ("Standard_NC24s_v3", 4, 16, 0),
        ("Standard_NC24r", 4, 12, 0),
        ("Standard_HC44rs", 0, 0, 100),
        ("Standard_HB120rs_v3", 0, 0, 200),
    ],
)
def test_what_the_guide_says(name: str, gpus: int, memory: int, infiniband: int) -> None:
    size = find_size(name)
    assert size is not None
    assert (size.gpus, size.gpu_memory, size.infiniband) == (gpus, memory, infiniband)


def test_nccl_gets_variables_only_where_they_help() -> None:
    helped = {size.name for size in EVERY if nccl_variables(size.name)}
    assert helped == {
        "Standard_ND96asr_v4",
        "Standard_ND96amsr_A100_v4",
        "Standard_ND96isr_H100_v5",
        "Standard_ND96isr_H200_v5",
        "Standard_ND96isr_MI300X_v5",
    }
    assert nccl_variables("standard_nd96asr_v4") == {"NCCL_IB_PCI_RELAXED_ORDERING": "1"}


def test_the_size_with_infiniband_and_the_same_gpu() -> None:
    def better(name: str) -> str | None:
        size = find_size(name)
        assert size is not None
        found = with_infiniband(size)
        return found and found.name

    assert better("Standard_NC24ads_A100_v4") == "Standard_ND96amsr_A100_v4"
    assert better("Standard_NC40ads_H100_v5") == "Standard_ND96isr_H100_v5"
    assert better("Standard_NC64as_T4_v3") is None
    assert better("Standard_HB120rs_v3") is None
