"""Which GPUs are of the kind that somebody asks for?"""

from __future__ import annotations

import pytest

from jobyard.errors import UserError
from jobyard.model.gpu_kinds import is_of_kind, parse_gpu_kind

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA-A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("h100", H100),
        ("H100", H100),
        ("nvidia h100", H100),
        ("a100", A100),
        ("a100-80gb", A100),
        ("rtx 4090", "NVIDIA GeForce RTX 4090"),
        ("rtx_4090", "NVIDIA GeForce RTX 4090"),
        ("", H100),
        ("mig-1g.5gb", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
        ("a100-mig-1g.5gb", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
        ("", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
    ],
)
def test_a_kind_is_known_by_whole_words_of_a_name(kind: str, name: str) -> None:
    assert is_of_kind(kind, name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("h100", "NVIDIA GH100"),
        ("h200", "NVIDIA GH200 480GB"),
        ("h10", H100),
        ("a100-40gb", A100),
        ("v100", ""),
        ("mig-1g.10gb", H100),
        ("a100", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
    ],
)
def test_a_part_of_a_word_is_no_kind_and_a_slice_is_meant_only_by_who_says_so(kind: str, name: str) -> None:
    assert not is_of_kind(kind, name)


def test_a_slice_that_is_counted_apart_is_for_those_alone_who_name_its_profile() -> None:
    assert is_of_kind("mig-1g.10gb", H100, "1g.10gb")
    assert is_of_kind("mig-1g.10gb+me", H100, "1g.10gb.me")
    assert not is_of_kind("mig-2g.20gb", H100, "1g.10gb")
    assert not is_of_kind("h100", H100, "1g.10gb")
    assert not is_of_kind("", H100, "1g.10gb")


def test_a_kind_keeps_how_it_was_written() -> None:
    assert parse_gpu_kind(" A100-80GB ", "--gpu-type") == "A100-80GB"


@pytest.mark.parametrize("text", ["", "  ", "-h100", "h100,a100", "h100:2", "h\n100", "x" * 101, "ä100"])
def test_what_no_gpu_can_be_called_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"--gpu-type: .* is no kind of GPU; write a word of its name"):
        parse_gpu_kind(text, "--gpu-type")
