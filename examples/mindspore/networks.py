# SPDX-License-Identifier: Apache-2.0
"""Computations with MindSpore's own operators: `python networks.py CPU|PyNative|graph|"graph, O2" results.npz`.

PyNative and graph are the modes on the NPU; with O2 the Graph Engine compiles and runs whole graphs. A process has one
device: run.py compares what several of them write.
"""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

HIDDEN, HEADS, TOKENS, BATCH, CLASSES = 64, 4, 12, 3, 10


def array(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) / np.sqrt(np.float32(shape[-1]))


def tensor(seed: int, *shape: int) -> ms.Tensor:
    return ms.Tensor(array(seed, *shape))


def set_parameters(cell: nn.Cell) -> nn.Cell:
    """Gives weights and biases, which begin as random numbers, the same values on every device."""
    for seed, parameter in enumerate(cell.get_parameters()):
        if parameter.name.endswith(("weight", "bias")):
            parameter.set_data(tensor(seed, *parameter.shape))
    return cell


class Block(nn.Cell):
    """A layer of a transformer: attention, then two dense layers, each with a norm before it and a sum after it."""

    def __init__(self):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm([HIDDEN]), nn.LayerNorm([HIDDEN])
        self.query_key_value, self.out = nn.Dense(HIDDEN, 3 * HIDDEN), nn.Dense(HIDDEN, HIDDEN)
        self.up, self.down = nn.Dense(HIDDEN, 4 * HIDDEN), nn.Dense(4 * HIDDEN, HIDDEN)
        self.activation = nn.GELU()

    def attention(self, x):
        parts = self.query_key_value(x).reshape(BATCH, TOKENS, 3, HEADS, HIDDEN // HEADS)
        query, key, value = (parts[:, :, i].transpose(0, 2, 1, 3) for i in (0, 1, 2))
        scores = ops.matmul(query, key.transpose(0, 1, 3, 2)) * (HEADS / HIDDEN) ** 0.5
        mixed = ops.matmul(ops.softmax(scores, -1), value)
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(BATCH, TOKENS, HIDDEN))

    def construct(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(self.activation(self.up(self.feed_forward_norm(x))))


class Classifier(nn.Cell):
    """Two blocks and a dense layer."""

    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.SequentialCell(Block(), Block()), nn.Dense(HIDDEN, CLASSES)

    def construct(self, x):
        return self.head(self.blocks(x).mean(1))


def trained(cell: nn.Cell, optimizer: nn.Optimizer, x: ms.Tensor, labels: ms.Tensor) -> dict[str, ms.Tensor]:
    """Two steps: what the cell gives before, the losses, the gradients of the first step and the parameters after."""
    loss_of = nn.CrossEntropyLoss()

    def loss_of_cell(x, labels):
        return loss_of(cell(x), labels)

    gradients_of = ms.value_and_grad(loss_of_cell, None, optimizer.parameters)
    results = {"output": cell(x)}
    for step in range(2):
        loss, gradients = gradients_of(x, labels)
        results[f"loss {step}"] = loss
        if step == 0:
            results |= {f"gradient of {p.name}": g for p, g in zip(optimizer.parameters, gradients, strict=True)}
        optimizer(gradients)
    return results | {f"new {parameter.name}": parameter.value() for parameter in optimizer.parameters}


def labels(count: int) -> ms.Tensor:
    return ms.Tensor(np.arange(count, dtype=np.int32) % CLASSES)


def dense_sgd():
    cell = set_parameters(nn.Dense(HIDDEN, CLASSES))
    return trained(cell, nn.SGD(cell.trainable_params(), 0.1), tensor(100, BATCH, HIDDEN), labels(BATCH))


def dense_momentum():
    cell = set_parameters(nn.Dense(HIDDEN, CLASSES))
    optimizer = nn.Momentum(cell.trainable_params(), 0.1, 0.9)
    return trained(cell, optimizer, tensor(100, BATCH, HIDDEN), labels(BATCH))


def transformer_adam():
    cell = set_parameters(Classifier())
    # The epsilon keeps gradients that are zero but for rounding, as those of a key's bias, from moving anything.
    optimizer = nn.Adam(cell.trainable_params(), 1e-3, eps=1e-4)
    return trained(cell, optimizer, tensor(101, BATCH, TOKENS, HIDDEN), labels(BATCH))


def softmax():
    x, weight = tensor(102, BATCH, TOKENS), tensor(103, BATCH, TOKENS)

    def weighted(x):
        return (ops.softmax(x, -1) * weight).sum()

    return {"output": ops.softmax(x, -1), "gradient": ms.grad(weighted)(x)}


def layer_norm():
    cell = nn.LayerNorm([HIDDEN])
    x, weight = tensor(104, BATCH, HIDDEN), tensor(105, BATCH, HIDDEN)

    def weighted(x):
        return (cell(x) * weight).sum()

    of_x, (of_gamma, of_beta) = ms.grad(weighted, 0, cell.trainable_params())(x)
    return {"output": cell(x), "gradient": of_x, "gradient of gamma": of_gamma, "gradient of beta": of_beta}


def top_k():
    values, indices = ops.topk(tensor(106, BATCH, HIDDEN), 5)
    return {"values": values, "indices": indices}


COMPUTATIONS = {
    "nn.Dense, SGD": dense_sgd,
    "nn.Dense, Momentum": dense_momentum,
    "softmax": softmax,
    "layer norm": layer_norm,
    "top-k": top_k,
    "transformer, Adam": transformer_adam,
}


def main(mode: str, path: str) -> None:
    ms.set_device("CPU" if mode == "CPU" else "Ascend")
    ms.set_context(mode=ms.GRAPH_MODE if mode.startswith("graph") else ms.PYNATIVE_MODE)
    if mode == "graph, O2":
        ms.set_context(jit_config={"jit_level": "O2"})
    results = {}
    for name, compute in COMPUTATIONS.items():
        results |= {f"{name}/{mode}/{what}": result.asnumpy() for what, result in compute().items()}
    np.savez(path, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
