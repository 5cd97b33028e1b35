# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings of queries and keys, and those that are written to a cache, against their formulas in float64."""

import re

import pytest
import torch
import torch_npu
from aclnn import InOut, Out, Rejected, written_by
from torch._subclasses.fake_tensor import FakeTensorMode

HALVES = [torch.float16, torch.bfloat16]
FLOATS = [torch.float32, *HALVES]


def floats(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(given, expected, dtype):
    # One rounding of the float32 result, to the nearest number of the dtype.
    tolerance = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(given.double(), expected.double(), rtol=tolerance, atol=tolerance / 10)


def turned(x, cos, sin):
    """The first half of a row are the real parts of numbers, the second half their imaginary parts."""
    x, cos, sin = x.double(), cos.double(), sin.double()
    size = x.shape[-1] // 2
    real, imaginary = x[..., :size], x[..., size:]
    return torch.cat(
        (
            real * cos[..., :size] - imaginary * sin[..., :size],
            imaginary * cos[..., size:] + real * sin[..., size:],
        ),
        -1,
    )


def from_pairs(x):
    return torch.cat((x[..., ::2], x[..., 1::2]), -1)


def to_pairs(x):
    size = x.shape[-1] // 2
    return torch.stack((x[..., :size], x[..., size:]), -1).flatten(-2)


def normalized(x, gamma, epsilon):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * gamma.double()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "layout, query, key, size",
    [
        ("BSND", (2, 7), 3, 128),
        ("BSND", (1, 1), 1, 64),
        ("TND", (5,), 2, 64),
        ("TND", (0,), 2, 128),
        ("TND", (4099,), 1, 128),
    ],
)
def test_apply_rotary_pos_emb(dtype, layout, query, key, size):
    q, k = floats(*query, 4, size, dtype=dtype), floats(*query, key, size, dtype=dtype, seed=1)
    cos, sin = (floats(*query, 1, size, dtype=dtype, seed=seed) for seed in (2, 3))
    given = [q.npu(), k.npu()]
    returned = torch_npu.npu_apply_rotary_pos_emb(*given, cos.npu(), sin.npu(), layout=layout)
    for x, in_place, result in zip((q, k), given, returned, strict=True):
        close(result.cpu(), turned(x, cos, sin), dtype)
        assert in_place.data_ptr() == result.data_ptr()


def test_apply_rotary_pos_emb_first_version_and_views():
    memory = floats(3, 5, 6, 256)
    q, k = memory[:, :, :4, 64:192].npu(), memory[:, :, 4:, 64:192].npu()
    cos, sin = floats(3, 5, 1, 128, seed=2), floats(3, 5, 1, 128, seed=3)
    whole = memory.npu()
    q, k = whole[:, :, :4, 64:192], whole[:, :, 4:, 64:192]
    torch_npu.npu_apply_rotary_pos_emb(q, k, cos.npu(), sin.npu())
    expected = memory.clone()
    expected[..., 64:192] = turned(memory[..., 64:192], cos, sin)
    close(whole.cpu(), expected, torch.float32)
    first = written_by(
        "aclnnApplyRotaryPosEmb", InOut(memory[:, :, :4, :128]), InOut(memory[:, :, 4:, :128]), cos, sin, 1
    )
    close(torch.cat(first, 2), turned(memory[..., :128], cos, sin), torch.float32)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "shape, length", [((2, 3, 7, 64), 7), ((2, 3, 7, 64), 1), ((1, 128, 1, 64), 1), ((0, 2, 1, 64), 1)]
)
def test_interleave_rope(dtype, shape, length):
    x = floats(*shape, dtype=dtype)
    cos, sin = (floats(shape[0], 1, length, 64, dtype=dtype, seed=seed) for seed in (1, 2))
    result = torch_npu.npu_interleave_rope(x.npu(), cos.npu(), sin.npu())
    close(result.cpu(), turned(from_pairs(x), cos, sin), dtype)


@pytest.mark.parametrize("mode, rotate", [("half", False), ("interleave", False), ("half", True), ("interleave", True)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rotary_mul(dtype, mode, rotate):
    x = floats(2, 5, 3, 64, dtype=dtype)
    cos, sin = (floats(1, 5, 1, 64, dtype=dtype, seed=seed) for seed in (1, 2))
    expected = (
        turned(x, cos, sin) if mode == "half" else to_pairs(turned(from_pairs(x), from_pairs(cos), from_pairs(sin)))
    )
    matrix = None
    if rotate:  # its product with x is x turned by a quarter
        zero, one = torch.zeros(64), torch.ones(64)
        identity = torch.eye(64, dtype=dtype)
        matrix = turned(identity, zero, one)
        if mode == "interleave":
            matrix = to_pairs(turned(from_pairs(identity), zero, one))
        matrix = matrix.to(dtype).npu()
    result = torch_npu.npu_rotary_mul(x.npu(), cos.npu(), sin.npu(), mode, matrix)
    close(result.cpu(), expected, dtype)


def angles_of(cache, positions, sections, interleaved):
    """The cosines and sines of every token; each direction has its part of them."""
    rows = cache.double()[positions.long()]
    halves = rows.chunk(2, -1)
    if not sections:
        return halves
    merged = []
    for half in halves:
        result = half[0].clone()
        for i in range(len(sections)):
            if interleaved:
                where = torch.arange(result.shape[-1])
                where = (where % 3 == i) & (where < 3 * sections[i]) if i > 0 else where < 0
            else:
                where = torch.zeros(result.shape[-1], dtype=torch.bool)
                where[sum(sections[:i]) : sum(sections[: i + 1])] = True
            result[:, where] = half[i][:, where]
        merged.append(result)
    return merged


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rotary_mode", ["half", "interleave"])
@pytest.mark.parametrize(
    "sections, cache_mode, head_size, rotary_size, tokens",
    [
        (None, "default", 128, 128, 7),
        (None, "default", 64, 32, 1),
        ([16, 24, 24], "default", 128, 128, 5),
        ([24, 20, 20], "interleave", 128, 128, 5),
        ([8, 12, 12], "interleave", 96, 64, 3),
        ([16, 16, 16, 16], "default", 160, 128, 2),
    ],
)
def test_mrope(dtype, rotary_mode, sections, cache_mode, head_size, rotary_size, tokens):
    generator = torch.Generator().manual_seed(5)
    positions = torch.randint(0, 11, (len(sections), tokens) if sections else (tokens,), generator=generator)
    q, k = floats(tokens, 3 * head_size, dtype=dtype), floats(tokens, head_size, dtype=dtype, seed=1)
    cache = floats(11, rotary_size, dtype=dtype, seed=2)
    cos, sin = angles_of(cache, positions, sections, cache_mode == "interleave")
    results = torch_npu.npu_mrope(
        positions.npu(),
        q.npu(),
        k.npu(),
        cache.npu(),
        head_size,
        mrope_section=sections,
        rotary_mode=rotary_mode,
        cache_mode=cache_mode,
    )
    for x, result in zip((q, k), results, strict=True):
        heads = x.double().unflatten(1, (-1, head_size))
        part = heads[..., :rotary_size]
        whole = [torch.cat((angle, angle), -1).unsqueeze(1) for angle in (cos, sin)]
        turn = turned(part, *whole) if rotary_mode == "half" else to_pairs(turned(from_pairs(part), *whole))
        close(result.cpu(), torch.cat((turn, heads[..., rotary_size:]), -1).flatten(1), dtype)


def test_the_first_version_has_angles_of_a_cache_too():
    q, k, cache = floats(3, 128), floats(3, 64, seed=1), floats(5, 64, seed=2)
    positions = torch.tensor([4, 0, 4], dtype=torch.int32)
    new = [Out((3, 128)), Out((3, 64))]
    results = written_by("aclnnRopeWithSinCosCache", positions, q, k, cache, None, 64, 1, *new)
    again = written_by("aclnnRopeWithSinCosCacheV2", positions, q, k, cache, [0, 0, 0], 64, 1, 0, *new)
    assert all(torch.equal(first, second) for first, second in zip(results, again, strict=True))


NORM, PAGED = "Norm", "PA"
COLUMN = {torch.int8: 32, torch.float16: 16, torch.bfloat16: 16}


def rounded(x, scale, offset):
    x = x * scale.double() if scale is not None else x
    x = x + offset.double() if offset is not None else x
    return x if scale is None else x.round().clamp(-128, 127)


def write(cache, mode, values, index):
    """Writes values of (batch, heads, tokens, size) to a cache, token by token."""
    batch, heads, length, size = values.shape
    column = COLUMN[cache.dtype]
    for b in range(batch):
        for s in range(length):
            value = values[b, :, s].to(cache.dtype)
            if mode == NORM:
                if index[b, s] >= 0:
                    cache[b, :, index[b, s]] = value
                continue
            block_size = cache.shape[1]
            if "BLK" in mode:
                blocks = -(-length // block_size)
                start = index[b * blocks + s // block_size]
                place = start // block_size, s % block_size
            else:
                start = index[b * length + s]
                place = start // block_size, start % block_size
            if start < 0:
                continue
            if "NZ" in mode:
                stored = cache.view(cache.shape[0], heads, size // column, block_size, column)
                stored[place[0], :, :, place[1]] = value.view(heads, -1, column)
            else:
                cache[place] = value


def indices(mode, batch, length, blocks, block_size, generator):
    if mode == NORM:
        return torch.stack([torch.randperm(block_size, generator=generator)[:length] for _ in range(batch)])
    if "BLK" in mode:
        each = -(-length // block_size)
        return torch.randperm(blocks, generator=generator)[: batch * each] * block_size
    return torch.randperm(blocks * block_size, generator=generator)[: batch * length]


@pytest.mark.parametrize("quantized", ["", "ckv", "both", "offset"])
@pytest.mark.parametrize("mode", [NORM, PAGED, "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ"])
@pytest.mark.parametrize("with_value", [False, True])
def test_kv_rmsnorm_rope_cache(quantized, mode, with_value):
    dtype = torch.bfloat16 if with_value else torch.float16
    batch, heads, length, blocks, block_size = 2, 3 if with_value else 1, 37, 8, 32
    if mode == NORM:
        block_size = 40
    norm, size, value = (192, 192, 128) if with_value else (512, 64, 512)
    kv = floats(batch, heads, length, 192 if with_value else 576, dtype=dtype)
    gamma = floats(norm, dtype=dtype, seed=1)
    cos, sin = (floats(batch, 1, length, 64, dtype=dtype, seed=seed) for seed in (2, 3))
    v = floats(batch, heads, length, value, dtype=dtype, seed=4) if with_value else None
    generator = torch.Generator().manual_seed(1)
    index = indices(mode, batch, length, blocks, block_size, generator)
    index.view(-1)[1] = -1
    dtypes = {"": (dtype, dtype), "ckv": (dtype, torch.int8)}.get(quantized, (torch.int8, torch.int8))
    shapes = [
        (batch, heads, block_size, each) if mode == NORM else (blocks, block_size, heads, each)
        for each in (size, value)
    ]
    caches = [torch.full(shape, 7).to(kind) for shape, kind in zip(shapes, dtypes, strict=True)]
    scales = [
        floats(each, seed=5) * 20 if kind == torch.int8 else None
        for each, kind in zip((size, value), dtypes, strict=True)
    ]
    offsets = [floats(each, seed=6) if quantized == "offset" else None for each in (size, value)]

    if with_value:
        whole = normalized(kv, gamma, 1e-5)
        key = torch.cat((turned(from_pairs(whole[..., :64]), cos, sin), whole[..., 64:]), -1)
        other = v.double()
    else:
        key = turned(from_pairs(kv[..., 512:]), cos, sin)
        other = normalized(kv[..., :512], gamma, 1e-5)
    expected = [cache.clone() for cache in caches]
    for cache, x, scale, offset in zip(expected, (key, other), scales, offsets, strict=True):
        write(cache, mode, rounded(x, scale, offset), index)

    on_npu = [None if x is None else x.npu() for x in (*scales, *offsets, v)]
    given = [cache.npu() for cache in caches]
    names = ["k_rope_scale", "c_kv_scale", "k_rope_offset", "c_kv_offset", "v"]
    results = torch_npu.npu_kv_rmsnorm_rope_cache(
        *[x.npu() for x in (kv, gamma, cos, sin, index)],
        *given,
        **dict(zip(names, on_npu, strict=True)),
        epsilon=1e-5,
        cache_mode=mode,
        is_output_kv=True,
    )
    for in_place, cache, kind in zip(given, expected, dtypes, strict=True):
        if kind == torch.int8:
            # float32 and float64 may lie on different sides of a half.
            difference = (in_place.cpu().int() - cache.int()).abs()
            assert difference.max() <= 1
            assert (difference > 0).float().mean() < 1e-3
        else:
            close(in_place.cpu(), cache, dtype)
    close(results[2].cpu(), key, dtype)
    close(results[3].cpu(), other, dtype)


def test_kv_rmsnorm_rope_cache_of_many_tokens_and_its_later_face():
    tokens, blocks = 8193, 65  # one past a part
    kv, gamma = floats(tokens, 1, 1, 576, dtype=torch.bfloat16), floats(512, dtype=torch.bfloat16, seed=1)
    cos, sin = (floats(tokens, 1, 1, 64, dtype=torch.bfloat16, seed=seed) for seed in (2, 3))
    index = torch.randperm(blocks * 128, generator=torch.Generator().manual_seed(0))[:tokens]
    key, value = (torch.zeros(blocks, 128, 1, size, dtype=torch.bfloat16) for size in (64, 512))
    given = [x.npu() for x in (kv, gamma, cos, sin, index)]
    caches = [key.npu(), value.npu()]
    torch_npu.npu_kv_rmsnorm_rope_cache_v2(*given, *caches, cache_mode="PA", is_output_kv=False)
    write(key, "PA", turned(from_pairs(kv[..., 512:]), cos, sin), index)
    write(value, "PA", normalized(kv[..., :512], gamma, 1e-5), index)
    close(caches[0].cpu(), key, torch.bfloat16)
    close(caches[1].cpu(), value, torch.bfloat16)
    functional = torch_npu.npu_kv_rmsnorm_rope_cache_v2_functional(
        *given, *[torch.zeros_like(cache) for cache in caches], cache_mode="PA", is_output_kv=False
    )
    assert all(torch.equal(new, cache) for new, cache in zip(functional[2:], caches, strict=True))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("quantized", ["", "scale", "offset"])
@pytest.mark.parametrize("batch, length", [(2, 33), (1, 1), (1, 513)])
def test_qkv_rms_norm_rope_cache(dtype, quantized, batch, length):
    heads, size, blocks, block_size = (3, 2, 2), 128, 9, 64
    tokens = batch * length
    qkv = floats(tokens, sum(heads) * size, dtype=dtype)
    gammas = [floats(size, dtype=dtype, seed=seed) for seed in (1, 2)]
    cos, sin = (floats(tokens, size, dtype=dtype, seed=seed) for seed in (3, 4))
    index = torch.randperm(blocks * block_size, generator=torch.Generator().manual_seed(0))[:tokens]
    if tokens > 1:
        index[-1] = -1
    kind = torch.int8 if quantized else dtype
    column = COLUMN[kind]
    caches = [torch.full((blocks, 2 * size // column, block_size, column), 7).to(kind) for _ in range(2)]
    scales = [1 + floats(2, size, seed=seed).abs() / 9 if quantized else None for seed in (5, 6)]
    offsets = [floats(2, size, seed=seed) if quantized == "offset" else None for seed in (7, 8)]

    q, k, v = qkv.double().unflatten(1, (-1, size)).split(heads, 1)
    q, k = (
        turned(normalized(x, gamma, 1e-6), cos.unsqueeze(1), sin.unsqueeze(1))
        for x, gamma in zip((q, k), gammas, strict=True)
    )
    expected = [cache.clone() for cache in caches]
    for cache, x, scale, offset in zip(expected, (k, v), scales, offsets, strict=True):
        if scale is not None:
            x = x / scale.double() + (0 if offset is None else offset.double())
            x = x.round().clamp(-128, 127)
        for token, slot in enumerate(index.tolist()):
            if slot >= 0:
                cache[slot // block_size, :, slot % block_size] = x[token].reshape(-1, column).to(kind)

    q_out = torch.empty(tokens, heads[0] * size, dtype=dtype).npu()
    given = [cache.npu() for cache in caches]
    names = ["k_scale", "v_scale", "k_offset", "v_offset"]
    before = torch_npu.npu_qkv_rms_norm_rope_cache(
        *[x.npu() for x in (qkv, *gammas, cos, sin, index)],
        q_out,
        *given,
        [batch, length, sum(heads), size],
        list(heads),
        **{name: None if x is None else x.npu() for name, x in zip(names, (*scales, *offsets), strict=True)},
        is_output_qkv=True,
    )
    close(q_out.cpu(), q.flatten(1), dtype)
    for result, x in zip(before, (q, k, v), strict=True):
        close(result.cpu(), x.flatten(1), dtype)
    for in_place, cache in zip(given, expected, strict=True):
        if quantized:
            difference = (in_place.cpu().int() - cache.int()).abs()
            assert difference.max() <= 1
            assert (difference > 0).float().mean() < 1e-2
        else:
            close(in_place.cpu(), cache, dtype)


Q, K, ANGLES = floats(2, 3, 2, 64), floats(2, 3, 1, 64), floats(2, 3, 1, 64)
X, ANGLE = floats(2, 3, 5, 64).half(), floats(2, 1, 5, 64).half()
CACHE = [torch.zeros(4, 16, 1, 64).half(), torch.zeros(4, 16, 1, 512).half()]
KV = [floats(2, 1, 3, 576).half(), floats(512).half(), *[floats(2, 1, 3, 64).half()] * 2]
POSITIONS = torch.tensor([0, 4])
CACHED = [floats(2, 128), floats(2, 64), floats(4, 64)]
OUTS = [Out((2, 128)), Out((2, 64))]
BAD = {
    "layout is 3; expected 1 (BSND) or 4 (TND)": (
        "ApplyRotaryPosEmbV2",
        [InOut(Q), InOut(K), ANGLES, ANGLES, 3, "half"],
    ),
    'rotary_mode is "interleave"; expected half': (
        "ApplyRotaryPosEmbV2",
        [InOut(Q), InOut(K), ANGLES, ANGLES, 1, "interleave"],
    ),
    "key has dtype float16; expected float32": ("ApplyRotaryPosEmb", [InOut(Q), InOut(K.half()), ANGLES, ANGLES, 1]),
    "cos has shape [2, 3, 2, 64]; expected [2, 3, 1, 64]": ("ApplyRotaryPosEmb", [InOut(Q), InOut(K), Q, ANGLES, 1]),
    "query has heads of size 32; expected 64 or 128": (
        "ApplyRotaryPosEmb",
        [InOut(Q[..., :32]), InOut(K[..., :32]), ANGLES[..., :32], ANGLES[..., :32], 1],
    ),
    "x has heads of size 32; expected 64": (
        "InterleaveRope",
        [X[..., :32], ANGLE[..., :32], ANGLE[..., :32], Out((2, 3, 5, 32), torch.float16)],
    ),
    "sin has shape [2, 1, 4, 64]; expected [2, 1, 5, 64]": (
        "InterleaveRope",
        [X, ANGLE, ANGLE[:, :, :4], Out((2, 3, 5, 64), torch.float16)],
    ),
    "rotate has shape [64, 32]; expected [64, 64]": (
        "RotaryPositionEmbeddingV2",
        [X, ANGLE, ANGLE, 0, torch.zeros(64, 32).half(), Out((2, 3, 5, 64), torch.float16)],
    ),
    "positions[1] is 4; expected 0 to 3": ("RopeWithSinCosCache", [POSITIONS, *CACHED, None, 64, 1, *OUTS]),
    "mrope_section is [16, 16]; expected": (
        "RopeWithSinCosCache",
        [POSITIONS.expand(2, 2), *CACHED, [16, 16], 64, 1, *OUTS],
    ),
    "mrope_section has the sum 64; expected 32": (
        "RopeWithSinCosCache",
        [POSITIONS.expand(3, 2), *CACHED, [16, 24, 24], 64, 1, *OUTS],
    ),
    "head_size is 40; expected a multiple of 16": ("RopeWithSinCosCache", [POSITIONS, *CACHED, None, 40, 1, *OUTS]),
    "cache_mode is 1 for positions of one dimension": (
        "RopeWithSinCosCacheV2",
        [POSITIONS, *CACHED, None, 64, 1, 1, *OUTS],
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_calls(message):
    name, arguments = BAD[message]
    with pytest.raises((Rejected, RuntimeError), match=re.escape(message)):
        written_by(f"aclnn{name}", *arguments)


@pytest.mark.parametrize(
    "message, change",
    {
        "index[4] is 64; expected 0 to 63, or -1": {"index": torch.tensor([0, 1, 2, 3, 64, 5])},
        "index has shape [2, 3]; expected [6]": {"index": torch.zeros(2, 3, dtype=torch.int64)},
        'cache_mode is "PA_ND"; expected Norm': {"mode": "PA_ND"},
        "k_cache has dtype Char; k_rope_scale must be given": {"k_cache": torch.zeros(4, 16, 1, 64, dtype=torch.int8)},
        "k_rope_scale is only for an int8 cache": {"k_rope_scale": torch.ones(64)},
        "k_cache has shape [4, 16, 1, 32]; expected [4, 16, 1, 64]": {"k_cache": torch.zeros(4, 16, 1, 32).half()},
        "gamma has shape [256]; expected [512]": {"gamma": torch.zeros(256).half()},
    }.items(),
)
def test_bad_calls_of_a_cache(message, change):
    kv, gamma, cos, sin = KV
    given = {
        "kv": kv,
        "gamma": gamma,
        "cos": cos,
        "sin": sin,
        "index": torch.arange(6),
        "k_cache": CACHE[0],
        "ckv_cache": CACHE[1],
        "k_rope_scale": None,
        "mode": "PA",
    }
    given |= change
    mode, scale = given.pop("mode"), given.pop("k_rope_scale")
    with pytest.raises(RuntimeError, match=re.escape(message)):
        torch_npu.npu_kv_rmsnorm_rope_cache(
            *[x.npu() for x in given.values()],
            k_rope_scale=None if scale is None else scale.npu(),
            cache_mode=mode,
        )
        torch.npu.synchronize()


def test_nothing_is_written_where_an_index_is_wrong():
    caches = [cache.npu() for cache in CACHE]
    with pytest.raises(RuntimeError, match=r"index\[5\] is 99"):
        torch_npu.npu_kv_rmsnorm_rope_cache(
            *[x.npu() for x in (*KV, torch.tensor([0, 1, 2, 3, 4, 99]))], *caches, cache_mode="PA"
        )
        torch.npu.synchronize()
    assert all(cache.cpu().eq(0).all() for cache in caches)


@pytest.mark.parametrize(
    "name, arguments",
    {
        "npu_interleave_rope": (X, ANGLE, ANGLE),
        "npu_mrope": (POSITIONS % 4, *CACHED, 64),
        "npu_rotary_mul": (X, ANGLE, ANGLE),
        "npu_kv_rmsnorm_rope_cache": (*KV, torch.arange(6).view(2, 3), *[c.view(2, 1, 32, -1) for c in CACHE]),
    }.items(),
)
def test_meta_has_the_same_shapes(name, arguments):
    function = getattr(torch_npu, name)
    with FakeTensorMode() as mode:
        fake = function(*[mode.from_tensor(x).npu() if isinstance(x, torch.Tensor) else x for x in arguments])
    real = function(*[x.npu() if isinstance(x, torch.Tensor) else x for x in arguments])
    for first, second in zip(*[x if isinstance(x, tuple) else (x,) for x in (fake, real)], strict=True):
        assert (first.shape, first.dtype) == (second.shape, second.dtype)
