# SPDX-License-Identifier: Apache-2.0
"""npu_mla_prolog, v2 and v3, against their formulas in float64."""

import itertools

import graphs
import pytest
import references
import torch
import torch_npu

HIDDEN, RANK, SIZE, LATENT, TURNED = 1024, 1536, 128, 512, 64
# weight_quant_mode, kv_cache_quant_mode, query_quant_mode
MODES = {
    "bfloat16": (0, 0, 0),
    "int8 queries' weight": (1, 0, 0),
    "int8 queries' weight and caches": (1, 2, 0),
    "int8 queries' weight, tiled cache": (1, 3, 0),
    "int8": (2, 0, 0),
    "int8 with int8 cache and queries": (2, 1, 1),
    "int8, tiled cache": (2, 3, 0),
}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def bytes_(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def weight(depth, columns, is_quantized):
    return bytes_(depth, columns) if is_quantized else (torch.randn(depth, columns) * depth**-0.5).bfloat16()


def scale(depth, *shape):
    return (torch.rand(shape) + 0.5) / (74 * depth**0.5)


def inputs_of(tokens, modes, *, heads=2, cache_mode="PA_BSND", blocks=4, block=16, lengths=None):
    """Arguments of npu_mla_prolog_v3; tokens are (T,) or (B, S), `lengths` those of packed sequences."""
    of_weights, of_cache, of_query = modes
    count = torch.Size(tokens).numel()
    angles = torch.rand(*tokens, TURNED) * 6
    row = 656 if of_cache == 3 else LATENT
    places = tokens if cache_mode in ("BSND", "TND") else (blocks, block)

    def cache(size, is_quantized):
        return bytes_(*places, 1, size) if is_quantized else torch.randn(*places, 1, size).bfloat16()

    inputs = dict(
        token_x=bytes_(*tokens, HIDDEN) if of_weights == 2 else torch.randn(*tokens, HIDDEN).bfloat16(),
        weight_dq=weight(HIDDEN, RANK, of_weights == 2),
        weight_uq_qr=weight(RANK, heads * (SIZE + TURNED), of_weights != 0),
        weight_uk=(torch.randn(heads, SIZE, LATENT) * SIZE**-0.5).bfloat16(),
        weight_dkv_kr=weight(HIDDEN, LATENT + TURNED, of_weights == 2),
        rmsnorm_gamma_cq=(1 + torch.randn(RANK) / 10).bfloat16(),
        rmsnorm_gamma_ckv=(1 + torch.randn(LATENT) / 10).bfloat16(),
        rope_sin=angles.sin().bfloat16(),
        rope_cos=angles.cos().bfloat16(),
        kv_cache=cache(row, of_cache != 0),
        kr_cache=cache(TURNED, of_cache == 2),
        cache_mode=cache_mode,
        weight_quant_mode=of_weights,
        kv_cache_quant_mode=of_cache,
        query_quant_mode=of_query,
        qc_qr_scale=1.5,
        kc_scale=0.75,
    )
    if of_cache == 3:
        inputs |= dict(ckvkr_repo_mode=1, quant_scale_repo_mode=1, k_nope_clip_alpha=torch.tensor([0.8]))
    if of_cache in (1, 2):
        inputs["quant_scale_ckv"] = torch.full((1,), 40.0) if of_cache == 1 else torch.rand(1, LATENT) * 50 + 10
    if of_cache == 2:
        inputs["quant_scale_ckr"] = torch.rand(1, TURNED) * 50 + 10
    if of_weights:
        inputs["smooth_scales_cq"] = torch.rand(1, RANK) + 0.5
        inputs["dequant_scale_w_uq_qr"] = scale(RANK, 1, heads * (SIZE + TURNED))
    if of_weights == 2:
        inputs["dequant_scale_x"] = torch.rand(count, 1) + 0.5
        inputs["dequant_scale_w_dq"] = scale(HIDDEN, 1, RANK)
        inputs["dequant_scale_w_dkv_kr"] = scale(HIDDEN, 1, LATENT + TURNED)
    if cache_mode in ("PA_BSND", "PA_NZ"):
        inputs["cache_index"] = torch.randperm(blocks * block)[:count].view(tokens)
    elif cache_mode not in ("BSND", "TND"):
        lengths = lengths or [tokens[1]] * tokens[0]
        needed = sum(-(-length // block) for length in lengths)
        inputs["cache_index"] = torch.randperm(blocks)[:needed]
        if len(tokens) == 2:
            inputs["cache_index"] = inputs["cache_index"].view(tokens[0], -1)
        else:
            inputs["actual_seq_len"] = torch.tensor(lengths).cumsum(0).int()
    return inputs


def places_of(inputs):
    """Each token's place in a cache whose blocks follow one another."""
    if "cache_index" not in inputs:
        return range(inputs["token_x"].shape[:-1].numel())
    index, block = inputs["cache_index"], inputs["kv_cache"].shape[1]
    if inputs["cache_mode"] in ("PA_BSND", "PA_NZ"):
        return index.flatten().tolist()
    if index.dim() == 2:
        lengths = [inputs["token_x"].shape[1]] * len(index)
    else:
        lengths = inputs["actual_seq_len"].diff(prepend=torch.zeros(1, dtype=torch.int32)).tolist()
    numbers = iter(index.flatten().tolist())
    pages = [list(itertools.islice(numbers, -(-length // block))) for length in lengths]
    return [
        page[i // block] * block + i % block for page, length in zip(pages, lengths, strict=True) for i in range(length)
    ]


def expected_of(inputs):
    """query, query_rope, query_norm before it is rounded, and the rows of the caches, in float64."""
    x = inputs["token_x"].double().flatten(0, -2)
    if "dequant_scale_x" in inputs:
        x = x * inputs["dequant_scale_x"].double()

    def times(x, name):
        matrix = inputs["weight_" + name].double()
        columns = inputs.get("dequant_scale_w_" + name)
        return x @ (matrix if columns is None else matrix * columns.double())

    sine, cosine = (inputs[name].flatten(0, -2) for name in ("rope_sin", "rope_cos"))
    norm = references.rms_norm(times(x, "dq"), inputs["rmsnorm_gamma_cq"], 1e-5) * inputs["qc_qr_scale"]
    latent = norm
    if inputs["weight_quant_mode"]:
        norm = norm * inputs["smooth_scales_cq"].double()
        values, norm_scale = references.quantise(norm)
        latent = values.double() * norm_scale
    heads = inputs["weight_uk"].shape[0]
    both = times(latent, "uq_qr").unflatten(1, (heads, -1))
    query = torch.einsum("tnd,ndl->tnl", both[..., :SIZE], inputs["weight_uk"].double())
    turned = references.rope(both[..., SIZE:], cosine[:, None], sine[:, None])
    keys = times(x, "dkv_kr")
    k = references.rms_norm(keys[:, :LATENT], inputs["rmsnorm_gamma_ckv"], 1e-5) * inputs["kc_scale"]
    return query, turned, norm, k, references.rope(keys[:, LATENT:], cosine, sine)


def near(actual, expected, rtol=2**-7):
    """Nearly all of bfloat16 results are the nearest number, and none is far off."""
    error = (actual.double() - expected).abs()
    size = expected.square().mean().sqrt()
    assert (error <= rtol * expected.abs() + 0.01 * size).all(), (error - rtol * expected.abs()).max() / size


def near_integers(actual, exact):
    """int8 that comes from products of floats: rounded half to even, but for results on the edge."""
    expected = exact.round().clamp(-128, 127)
    off = (actual.double() - expected).abs()
    on_the_edge = (exact - exact.floor() - 0.5).abs() < 2e-3
    assert off.max() <= 1 and not (off.bool() & ~on_the_edge).any()


def nz(cache, size):
    """A cache as PA_NZ stores it, token by token."""
    width = 32 // cache.element_size()
    blocks, block = cache.shape[:2]
    return cache.view(blocks, size // width, block, width).transpose(1, 2).reshape(blocks * block, size)


def call(inputs, operator=torch_npu.npu_mla_prolog_v3, **more):
    there = {name: x.npu() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}
    for name in ("weight_dq", "weight_uq_qr", "weight_dkv_kr"):
        there[name] = torch_npu.npu_format_cast(there[name], 29)
    results = operator(**there, **more)
    return [x.cpu() for x in results], there["kv_cache"].cpu(), there["kr_cache"].cpu()


def check(inputs, results, kv, kr):
    query, turned, norm, k, k_turned = expected_of(inputs)
    tokens = len(query)
    got = [x.flatten(0, -3) if x.dim() == 4 else x for x in results[:2]]
    if inputs["query_quant_mode"]:
        scales = references.quantise(query)[1]
        assert torch.allclose(results[2].double(), scales, rtol=1e-5)
        near_integers(got[0], query / scales)
    else:
        near(got[0], query)
    near(got[1], turned)
    if results[3].numel():
        if inputs["weight_quant_mode"]:
            scales = references.quantise(norm)[1]
            assert torch.allclose(results[4].double(), scales, rtol=1e-5)
            near_integers(results[3].view(tokens, -1), norm / scales)
        else:
            near(results[3].view(tokens, -1), norm)
    places = list(places_of(inputs))
    stored = [inputs["kv_cache"], inputs["kr_cache"], kv, kr]
    if "NZ" in inputs["cache_mode"]:
        stored = [nz(cache, cache.shape[-1]) for cache in stored]
    kv_before, kr_before, kv, kr = (cache.reshape(-1, cache.shape[-1]) for cache in stored)
    others = torch.ones(len(kv), dtype=torch.bool)
    others[places] = False
    assert torch.equal(kv[others], kv_before[others]) and torch.equal(kr[others], kr_before[others])
    match inputs["kv_cache_quant_mode"]:
        case 0:
            near(kv[places], k)
            near(kr[places], k_turned)
        case 1:
            near_integers(kv[places], k * inputs["quant_scale_ckv"].double())
            near(kr[places], k_turned)
        case 2:
            near_integers(kv[places], k * inputs["quant_scale_ckv"].double())
            near_integers(kr[places], k_turned * inputs["quant_scale_ckr"].double())
        case 3:
            tiles = k.unflatten(1, (4, 128))
            scales = tiles.abs().amax(-1, keepdim=True) * 0.8 / 127
            rows = kv[places]
            assert torch.allclose(rows[:, 640:].contiguous().view(torch.float32).double(), scales[..., 0], rtol=1e-5)
            near_integers(rows[:, :512], (tiles / scales).clamp(-127, 127).flatten(1))
            near(rows[:, 512:640].contiguous().view(torch.bfloat16), k_turned)
            assert torch.equal(kr, kr_before)


@pytest.mark.parametrize("modes", MODES.values(), ids=list(MODES))
def test_quantisation_modes(modes):
    for tokens in [(7,), (2, 3)]:
        inputs = inputs_of(tokens, modes)
        check(inputs, *call(inputs, query_norm_flag=True))


CACHES = {
    "PA_NZ": dict(tokens=(5,)),
    "PA_BLK_BSND": dict(tokens=(2, 17)),
    "PA_BLK_NZ": dict(tokens=(20,), lengths=[1, 0, 17, 2]),
    "BSND": dict(tokens=(2, 3)),
    "TND": dict(tokens=(5,)),
}


@pytest.mark.parametrize("cache_mode, sizes", CACHES.items(), ids=list(CACHES))
def test_caches(cache_mode, sizes):
    for modes in [(0, 0, 0), (1, 2, 0), (2, 1, 1)]:
        inputs = inputs_of(modes=modes, cache_mode=cache_mode, **sizes)
        check(inputs, *call(inputs))


def test_many_tokens_and_heads():
    inputs = inputs_of((37,), (0, 0, 0), heads=128)
    check(inputs, *call(inputs))


@pytest.mark.parametrize("tokens", [(0,), (2, 0)])
def test_no_tokens(tokens):
    inputs = inputs_of(tokens, (0, 0, 0))
    results, kv, kr = call(inputs)
    assert results[0].shape == (*tokens, 2, LATENT)
    assert torch.equal(kv, inputs["kv_cache"]) and torch.equal(kr, inputs["kr_cache"])


@pytest.mark.parametrize("name", ["bfloat16", "int8 queries' weight and caches", "int8 with int8 cache and queries"])
def test_earlier_versions(name):
    inputs = inputs_of((5,), MODES[name]) | {"qc_qr_scale": 1, "kc_scale": 1}
    of_first = {k: v for k, v in inputs.items() if "_mode" not in k and k not in ("qc_qr_scale", "kc_scale")}
    results, kv, kr = call(of_first, torch_npu.npu_mla_prolog_v2, cache_mode="PA_BSND")
    check(inputs, [results[0], results[1], results[4], torch.empty(0)], kv, kr)
    if not inputs["query_quant_mode"]:
        results, kv, kr = call(of_first, torch_npu.npu_mla_prolog, cache_mode="PA_BSND")
        check(inputs, [results[0], results[1], torch.empty(0), torch.empty(0)], kv, kr)


def test_the_functional_version_leaves_its_caches():
    inputs = inputs_of((5,), (0, 0, 0))
    results, kv, kr = call(inputs, torch_npu.npu_mla_prolog_v3_functional)
    assert torch.equal(kv, inputs["kv_cache"]) and torch.equal(kr, inputs["kr_cache"])
    check(inputs, results[:5], *results[5:])


@pytest.mark.usefixtures("internal_formats")
@pytest.mark.parametrize("mode", graphs.MODES)
@pytest.mark.parametrize("name", list(MODES))
def test_a_graph_gives_the_bits_of_eager(name, mode):
    inputs = inputs_of((2, 3), MODES[name])
    cases = [(torch_npu.npu_mla_prolog_v3, inputs | {"query_norm_flag": True}, 5)]
    cases.append((torch_npu.npu_mla_prolog_v3_functional, inputs, 7))
    if MODES[name][1] != 3:
        unnamed = {k: v for k, v in inputs.items() if "_mode" not in k and k not in ("qc_qr_scale", "kc_scale")}
        cases.append((torch_npu.npu_mla_prolog_v2, unnamed, 5 if MODES[name][2] else 4))
    if MODES[name][0] < 2 and MODES[name][1] != 3 and mode != "captured":  # an aclop, which torch_npu does not capture
        cases.append((torch_npu.npu_mla_prolog, unnamed, 4))
    for operator, given, count in cases:
        graph = graphs.MODES[mode](lambda operator=operator, **more: operator(**more))
        expected, *expected_caches = call(given, operator)
        results, *caches = call(given, graph)
        graphs.assert_same_bits(results[:count] + caches, expected[:count] + expected_caches)


def without(name):
    return lambda inputs: inputs.pop(name)


def with_(**changes):
    return lambda inputs: inputs.update(changes)


REJECTED = {
    "cache_mode": (with_(cache_mode="BNSD"), 'cache_mode is "BNSD"; expected PA_BSND'),
    "cache_mode of whole batches": (with_(cache_mode="BSND"), 'cache_mode is "BSND"; expected PA_BSND, PA_NZ'),
    "modes": (with_(kv_cache_quant_mode=1), "weight_quant_mode 0, kv_cache_quant_mode 1 and query_quant_mode 0 are"),
    "cache's dtype": (with_(kv_cache=bytes_(4, 16, 1, 512)), "kv_cache has dtype Char; these quantisation modes exp"),
    "cache's shape": (with_(kr_cache=torch.ones(4, 16, 1, 32).bfloat16()), r"kr_cache has shape \[4, 16, 1, 32\]"),
    "rope": (with_(rope_sin=torch.ones(5, 32).bfloat16()), r"rope_sin has shape \[5, 32\]; expected \[5, 64\]"),
    "no index": (without("cache_index"), "cache_index is null; cache_mode is PA_BSND"),
    "a scale": (with_(dequant_scale_x=torch.ones(5, 1)), "dequant_scale_x is given; these quantisation modes do not"),
    "gamma": (with_(rmsnorm_gamma_ckv=torch.ones(512)), "rmsnorm_gamma_ckv has dtype float32; expected bfloat16"),
    "an index": (with_(cache_index=torch.tensor([0, 1, 64, 3, 4])), r"cache_index\[2\] is 64; expected 0 to 63"),
}


@pytest.mark.parametrize("change, message", REJECTED.values(), ids=list(REJECTED))
def test_bad_arguments_are_rejected(change, message):
    inputs = inputs_of((5,), (0, 0, 0))
    change(inputs)
    with pytest.raises(RuntimeError, match=message):
        call(inputs)
