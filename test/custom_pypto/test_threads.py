# SPDX-License-Identifier: Apache-2.0
"""Operators called from many threads at once, with errors among them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch_npu  # noqa: F401
from calls import CALLS, WRITERS, arguments_of, assert_caches_same, assert_same, copied, overload, tensors_of

import custom_pypto  # noqa: F401

ops = torch.ops.custom_pypto
THREADS, ROUNDS = 6, 60


def in_threads(work):
    """Runs work(thread number) in THREADS threads that start together, and raises what any of them raised."""
    torch.npu.synchronize()  # what the threads read may come from another stream than theirs
    barrier = threading.Barrier(THREADS)

    def start(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start, range(THREADS)))


def test_results_belong_to_their_calls():
    def work(number):
        for round_ in range(ROUNDS):
            x = torch.full((number + 1, 7), float(round_)).npu()
            y = torch.full((7,), float(number)).npu()
            assert torch.equal(ops.add_custom(x, y).cpu(), torch.full((number + 1, 7), float(round_ + number)))

    in_threads(work)


def test_threads_on_streams_and_devices_of_their_own():
    def work(number):
        device = f"npu:{number % 2}"
        with torch.npu.device(device), torch.npu.stream(torch.npu.Stream(device)):
            x = torch.ones(33, 5).to(device)
            for _ in range(ROUNDS):
                x = ops.add_custom(x, x / x)
            assert torch.equal(x.cpu(), torch.full((33, 5), ROUNDS + 1.0))

    in_threads(work)


def test_an_error_stays_in_its_thread():
    def work(number):
        x = torch.arange(8.0).npu()
        for _ in range(ROUNDS):
            if number % 2:
                with pytest.raises(RuntimeError, match=f"its shape is \\[{number + 10}\\]"):
                    ops.add_custom(x, torch.ones(number + 10).npu())
            else:
                assert torch.equal(ops.add_custom(x, x).cpu(), torch.arange(8.0) * 2)

    in_threads(work)


def test_gradients_in_threads():
    def work(number):
        for _ in range(ROUNDS // 4):
            x = torch.ones(4, number + 1).npu().requires_grad_()
            y = torch.ones(number + 1).npu().requires_grad_()
            ops.add_custom(x, y).sum().backward()
            assert torch.equal(x.grad.cpu(), torch.ones(4, number + 1))
            assert torch.equal(y.grad.cpu(), torch.full((number + 1,), 4.0))

    in_threads(work)


@pytest.mark.parametrize("operator", WRITERS)
def test_threads_write_rows_of_caches_of_their_own(operator):
    """Together on one device, each as often as there is work for it, with a call that is rejected among them."""
    call = list(CALLS[operator])[1]
    arguments = [arguments_of(operator, call) for _ in range(THREADS)]
    expected = [copied(each) for each in arguments]
    alone = [overload(operator)(**each) for each in expected]

    def work(number):
        for _ in range(5):
            ours = copied(arguments[number])
            assert_same(overload(operator)(**ours), alone[number])
            assert_caches_same(operator, ours, expected[number])
            with pytest.raises(RuntimeError, match=r"must (have|be of dtype)"):
                overload(operator)(**ours | {tensors_of(operator)[0]: torch.ones(number + 1).bfloat16().npu()})

    in_threads(work)
