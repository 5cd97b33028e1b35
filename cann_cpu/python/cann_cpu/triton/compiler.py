# SPDX-License-Identifier: Apache-2.0
"""The compiler of the backend: a kernel is not compiled, its Python function runs."""

from dataclasses import dataclass, make_dataclass

from triton.backends.compiler import BaseBackend

TARGET = "npu"
"""The name that triton-ascend's target has, which libraries look for."""


@dataclass(frozen=True)
class _Fixed:
    debug: bool = False
    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 1
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    sanitize_overflow: bool = False
    extern_libs: object = None
    backend_name: str = "cann_cpu"


OF_THE_COMPILER = (
    "maxnreg", "instrumentation_mode", "fpsan_homomorphic_casts", "allow_fp8e4nv", "ir_override", "stream",
    "cluster_dims", "warp_size", "llvm_version", "kernel_name", "multibuffer", "enable_auto_bind_sub_block",
    "enable_select_analysis", "enable_hivm_auto_cv_balance", "sync_solver", "unit_flag", "inject_barrier_all",
    "inject_block_all", "limit_auto_multi_buffer_only_for_local_buffer", "limit_auto_multi_buffer_of_local_buffer",
    "set_workspace_multibuffer", "tile_mix_vector_loop", "tile_mix_cube_loop", "disable_auto_inject_block_sync",
    "enable_linearize", "enable_warp_specialization", "enable_nd2nz_on_vector", "enable_persistent",
    "optimize_epilogue", "num_buffers_warp_spec", "num_consumer_groups", "reg_dec_producer", "reg_inc_consumer",
    "parallel_mode", "force_simt_only", "force_simt_template", "compile_mode", "shared_mem_dynamic_size",
    "compile_on_910_95", "bishengir_options",
    "waves_per_eu", "matrix_instr_nonkdim", "kpack", "enable_ubuf_saving", "simt_stack_limit",
    "auto_tile_and_bind_subblock",
)  # fmt: skip
"""Options of launches that say how to compile, as triton-ascend knows them; they change no result."""

Options = make_dataclass("Options", [(name, object, None) for name in OF_THE_COMPILER], bases=(_Fixed,), frozen=True)


class Backend(BaseBackend):
    binary_ext = "python"

    @staticmethod
    def supports_target(target):
        return target.backend == TARGET

    def hash(self):
        return "cann_cpu"

    def parse_options(self, options):
        return Options(**{name: value for name, value in options.items() if name in Options.__dataclass_fields__})

    def pack_metadata(self, metadata):
        return ()

    def get_codegen_implementation(self, options=None):
        return {}

    def load_dialects(self, context):
        pass

    def get_module_map(self):
        return {}

    def add_stages(self, stages, options, language=None):
        raise NotImplementedError("cann_cpu runs kernels of triton.jit; it does not compile IR")


def install():
    """Lets `triton.compiler.compile` give kernels that run here, where the target is this backend's.

    JITFunction takes the function from the module when it launches a kernel for the first time. A second call changes
    nothing.
    """
    import triton
    import triton.compiler
    from triton.compiler import ASTSource

    original = triton.compiler.compile
    if getattr(original, "of_cann_cpu", False):
        return

    def compile(src, target=None, options=None, **further):
        from triton.runtime.driver import driver

        if target is None:
            target = driver.active.get_current_target()
        if target.backend != TARGET or not isinstance(src, ASTSource):
            return original(src, target=target, options=options, **further)
        from .kernel import Kernel

        return Kernel(src, target, Backend(target).parse_options(dict(options or {})))

    compile.of_cann_cpu = True
    triton.compiler.compile = compile
    if getattr(triton, "compile", None) is original:
        triton.compile = compile
