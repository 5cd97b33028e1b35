# SPDX-License-Identifier: Apache-2.0
"""Triton's driver for the NPUs of cann_cpu, active where this CANN is the one in use and torch_npu sees devices."""

import re
import time

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from .. import activation
from . import runtime
from .compiler import TARGET, install


class Utils:
    """What kernels' authors ask of a device."""

    @staticmethod
    def get_device_properties(device=0) -> dict:
        from .kernel import capacity

        number = int(getattr(device, "index", device) or 0)
        aicores = runtime.cores(number, runtime.AICORES)
        return {
            "num_aicore": aicores,
            "num_vectorcore": runtime.cores(number, runtime.VECTOR_CORES),
            "max_shared_mem": capacity(),
            "multiprocessor_count": aicores,
            "warpSize": 1,
            "max_num_regs": 0,
        }

    def get_arch(self) -> str:
        return runtime.chip()

    def get_aicore_num(self) -> int:
        return self.get_device_properties()["num_aicore"]

    def get_aivector_core_num(self) -> int:
        return self.get_device_properties()["num_vectorcore"]


class Driver(DriverBase):
    launcher_cls = None

    def __init__(self):
        super().__init__()
        self.utils = Utils()
        install()

    @classmethod
    def is_active(cls) -> bool:
        if activation.choose().cann != "cpu":
            return False
        try:
            import torch_npu
        except ImportError:
            return False
        return torch_npu.npu.is_available()

    def get_current_target(self):
        return GPUTarget(TARGET, self.utils.get_arch(), 0)

    def get_current_device(self) -> int:
        return self.get_device_interface().current_device()

    def set_current_device(self, device):
        self.get_device_interface().set_device(device)

    def get_current_stream(self, device=None) -> int:
        """The handle is asked for by the launch, which waits for torch_npu's queue then."""
        return 0

    def get_active_torch_device(self):
        import torch

        return torch.device("npu", self.get_current_device())

    def get_device_interface(self):
        import torch

        return torch.npu

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("cann_cpu makes no launchers in C++")

    def get_benchmarker(self):
        """One call of each configuration: what a CPU takes says nothing of an NPU, but the fastest here is chosen.

        A configuration that needs more than the unified buffer is left out, as an NPU's compiler does it.
        """
        from triton.runtime.errors import OutOfResources

        from .diagnostics import CAPACITY

        def benchmark(kernel_call, quantiles=None, **_):
            synchronize = self.get_device_interface().synchronize
            synchronize()
            begin = time.perf_counter()
            try:
                kernel_call()
                synchronize()
            except RuntimeError as error:
                sizes = re.search(CAPACITY.format(r"(\d+)", r"(\d+)"), str(error))
                if sizes is None:
                    raise
                raise OutOfResources(*map(int, sizes.groups()), "unified buffer") from error
            taken = (time.perf_counter() - begin) * 1e3
            return [taken] * len(quantiles) if quantiles else taken

        return benchmark

    def get_empty_cache_for_benchmark(self):
        import torch

        return torch.empty(1, dtype=torch.int, device=self.get_active_torch_device())

    def clear_cache(self, cache):
        cache.zero_()
