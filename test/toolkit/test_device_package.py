# SPDX-License-Identifier: Apache-2.0
"""The build of opp/ for NPUs runs against the toolkit as it stands, and its functions compute."""

import aclnn
import goldens
import pytest
import torch

WRITTEN = ("input_tokens", "input_positions", "seq_lens", "slot_mapping")
pytestmark = pytest.mark.nightly  # the same kernels run in test/opp; here they are compiled once more


@pytest.fixture(scope="module")
def library(device_package):
    return str(device_package / "op_api/lib/libcust_opapi.so")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int16], ids=str)
def test_add_custom(library, dtype):
    x, y = (torch.randint(-9, 9, (100, 333)).to(dtype) for _ in range(2))
    out = torch.empty_like(x).npu()
    aclnn.call(library, "aclnnAddCustom", x.npu(), y.npu(), out)
    assert torch.equal(out.cpu(), x + y)


def test_what_the_vector_unit_has_not_is_rejected_when_it_is_tiled(library):
    x = torch.ones(8, dtype=torch.float64).npu().to(torch.float32)
    with pytest.raises(
        aclnn.Rejected, match=r"aclnnAddCustom: tiling failed: .* for self float32\[8\], other float32\[1\]"
    ):
        aclnn.call(library, "aclnnAddCustom", x, x[:1], x.clone())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_advance_step(library, dtype):
    inputs = goldens.advance_step_flashattn_inputs([5, 15, 31], padding=2, dtype=dtype)
    names = ["input_tokens", "sampled_token_ids", "input_positions", "seq_lens", "slot_mapping", "block_tables"]
    npu = {name: inputs[name].npu() for name in names}
    numbers = [inputs[name] for name in ("num_seqs", "num_queries", "block_size")]
    aclnn.call(library, "aclnnAdvanceStepFlashattn", *npu.values(), *numbers)
    for name, expected in zip(WRITTEN, goldens.advance_step_flashattn(**inputs), strict=True):
        assert torch.equal(npu[name].cpu(), expected), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("with_values", [False, True])
def test_reshape_and_cache(library, dtype, with_values):
    key, value = (torch.randint(-99, 99, (6, 2, width)).to(dtype) for width in (64, 32))
    caches = [torch.zeros(3, 4, 2, width, dtype=dtype) for width in (64, 32)]
    slots = torch.tensor([0, 11, 5, -1, 7, 3], dtype=torch.int32)
    npu = [cache.npu() for cache in caches]
    given = (value.npu(), npu[1]) if with_values else (None, None)
    aclnn.call(library, "aclnnReshapeAndCache", key.npu(), given[0], npu[0], given[1], slots.npu(), "ND")
    for cache, rows in zip(caches, (key, value), strict=True):
        cache.view(12, *cache.shape[2:])[slots[slots >= 0].long()] = rows[slots >= 0]
    assert torch.equal(npu[0].cpu(), caches[0])
    assert torch.equal(npu[1].cpu(), caches[1] if with_values else torch.zeros_like(caches[1]))
