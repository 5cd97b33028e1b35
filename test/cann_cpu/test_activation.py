# SPDX-License-Identifier: Apache-2.0
"""Which CANN a process uses, and that plain programs run on the one of the CPU with no variable set."""

import subprocess
import sys
import textwrap
from importlib.metadata import version

import pytest
from cann_cpu import activation
from kernels import clean_environment


def run_program(tmp_path, text, **variables):
    """Runs a Python program as a user would, in an environment without CANN's variables; gives what it printed."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(text))
    result = subprocess.run(
        [sys.executable, str(script)], env=clean_environment(**variables), capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


PROGRAMS = {
    "torch alone": """
        import torch
        x = torch.arange(6.0).npu()
        print((x + 1).sum().item(), torch.npu.device_count())
    """,
    "torch_npu first": """
        import torch_npu
        import torch
        x = torch.arange(6.0).npu()
        print((x + 1).sum().item(), torch.npu.device_count())
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_plain_program_runs_with_no_variable_set(tmp_path, program):
    assert run_program(tmp_path, program).split() == ["21.0", "2"]


@pytest.mark.parametrize(
    ("lacks", "missing"),
    [
        ("sys.modules['packaging'] = None", "ModuleNotFoundError: import of packaging halted; None in sys.modules"),
        ("importlib.metadata.version = lacking", "packaging: pip install packaging"),
    ],
)
def test_info_says_what_torchair_lacks(tmp_path, lacks, missing):
    out = run_program(
        tmp_path,
        f"""
        import importlib.metadata, sys
        from cann_cpu.__main__ import info

        version = importlib.metadata.version
        def lacking(name):
            if name == "packaging":
                raise importlib.metadata.PackageNotFoundError(name)
            return version(name)

        {lacks}
        print(info())
        """,
    )
    assert out.splitlines()[-2:] == [f"missing            {missing}", "1"]


def test_the_next_finder_is_asked_for_torch_npu_as_well(tmp_path):
    program = """
        import sys

        class Recorder:
            def find_spec(self, name, path=None, target=None):
                if name == "torch_npu":
                    print("asked")

        sys.meta_path.insert(1, Recorder())  # after cann_cpu's
        import torch_npu
    """
    assert run_program(tmp_path, program).split() == ["asked"]


def test_a_forked_data_loader_worker_stays_on_the_cpu(tmp_path):
    out = run_program(
        tmp_path,
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        scale = torch.full((1,), 2.0, device="npu")  # the parent uses the NPU before the workers are forked
        torch.npu.synchronize()
        data = TensorDataset(torch.arange(8.0))
        loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
        print(sum((batch.npu() * scale).sum().item() for (batch,) in loader))
        """,
    )
    assert out.split() == ["56.0"]


@pytest.mark.nightly
def test_a_spawned_process_uses_another_device(tmp_path):
    out = run_program(
        tmp_path,
        """
        import torch
        import torch.multiprocessing as mp

        import custom_pypto

        def work(queue):
            torch.npu.set_device(1)
            x = torch.arange(4.0).npu()
            queue.put((custom_pypto.add_custom(x, x).sum().item(), torch.npu.current_device()))

        if __name__ == "__main__":
            torch.ones(1, device="npu:0")
            context = mp.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            print(*queue.get(timeout=120))
            process.join()
            print(process.exitcode)
        """,
    )
    assert out.split() == ["12.0", "1", "0"]


SET_ENV = {"ASCEND_HOME_PATH": activation.HOME, "LD_LIBRARY_PATH": activation.LIBRARIES}


@pytest.mark.parametrize("variables", [{}, SET_ENV], ids=["plain", "set_env"])
def test_mindspore_finds_the_libraries_by_a_path_that_names_its_home(tmp_path, variables):
    (tmp_path / "mindspore.py").write_text("")  # stands for MindSpore, which is not installed beside torch_npu
    program = """
        import ctypes, os
        import mindspore

        info, library = (ctypes.c_char_p * 4)(), ctypes.CDLL("libascendcl.so")
        ctypes.CDLL(None).dladdr(ctypes.cast(library.aclInit, ctypes.c_void_p), info)
        home = os.environ["ASCEND_HOME_PATH"]
        print(home, info[0].decode(), open(home + "/compiler/version.info").read())
    """
    home, library, version = run_program(tmp_path, program, **variables).split()
    assert (home, version) == (activation.HOME, "Version=9.1.0")
    assert library == f"{home}/latest/lib64/libascendcl.so"


@pytest.fixture
def real_cann(tmp_path):
    """A folder that looks like an installed CANN."""
    library = tmp_path / "cann" / "lib64" / "libascendcl.so"
    library.parent.mkdir(parents=True)
    subprocess.run(
        ["g++", "-shared", "-x", "c++", "-", "-o", str(library), "-Wl,-soname,libascendcl.so"], input=b"", check=True
    )
    return tmp_path / "cann"


def choice_with(**variables):
    program = "from cann_cpu.activation import choose; print('|'.join(choose()))"
    result = subprocess.run(
        [sys.executable, "-c", program], env=clean_environment(**variables), capture_output=True, text=True, check=True
    )
    return tuple(result.stdout.strip().split("|"))


def test_the_cpu_is_the_choice_where_no_other_cann_is():
    assert choice_with() == ("cpu", "no other CANN was found")


def test_a_real_cann_named_by_ascend_home_path_wins(real_cann):
    assert choice_with(ASCEND_HOME_PATH=str(real_cann)) == ("real", f"ASCEND_HOME_PATH={real_cann}")


def test_a_real_cann_that_the_linker_finds_wins(real_cann):
    assert choice_with(LD_LIBRARY_PATH=str(real_cann / "lib64")) == ("real", "the linker finds libascendcl.so")


def test_an_ascend_home_path_without_a_cann_is_not_one(tmp_path):
    assert choice_with(ASCEND_HOME_PATH=str(tmp_path))[0] == "cpu"


def test_this_cann_loaded_by_its_path_is_not_another_one():
    program = """
        import ctypes, os
        from cann_cpu import activation
        ctypes.CDLL(os.path.join(activation.LIBRARIES, "libascendcl.so"))
        print(activation.choose().reason)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=clean_environment(), capture_output=True, text=True
    )
    assert result.stdout.strip() == "no other CANN was found", result.stderr


def test_cann_cpu_0_turns_it_off():
    assert choice_with(CANN_CPU="0") == ("none", "CANN_CPU=0")


def test_set_env_does_by_hand_what_activation_does():
    program = "import torch; print(torch.ones(3).npu().sum().item())"
    result = subprocess.run(
        ["bash", "-c", f'source "$("$PYTHON" -m cann_cpu set_env)"; "$PYTHON" -c "{program}"'],
        env=clean_environment(PYTHON=sys.executable),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.stdout.split() == ["3.0"], result.stderr


def test_set_env_makes_this_cann_the_choice():
    script = 'source "$("$PYTHON" -m cann_cpu set_env)"; env'
    result = subprocess.run(
        ["bash", "-c", script], env=clean_environment(PYTHON=sys.executable), capture_output=True, text=True, check=True
    )
    assert f"ASCEND_HOME_PATH={activation.HOME}" in result.stdout.splitlines()
    assert f"LD_LIBRARY_PATH={activation.LIBRARIES}" in result.stdout.splitlines()


def test_run_gives_a_command_this_cann_in_its_environment(real_cann):
    program = "from cann_cpu.activation import choose; print(choose().cann)"
    result = subprocess.run(
        [sys.executable, "-m", "cann_cpu", "run", "--", sys.executable, "-c", program],
        env=clean_environment(ASCEND_HOME_PATH=str(real_cann), CANN_CPU="0"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["cpu"]


def test_run_hands_the_exit_code_on():
    command = [sys.executable, "-m", "cann_cpu", "run", "--", sys.executable, "-c", "raise SystemExit(7)"]
    assert subprocess.run(command).returncode == 7


@pytest.mark.parametrize("options", [[], ["--check=race"]])
def test_run_says_why_a_command_does_not_start(tmp_path, options):
    program = tmp_path / "program.py"
    command = [sys.executable, "-m", "cann_cpu", "run", *options, "--", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 127
    assert done.stderr == f"cann_cpu: {program} does not start: No such file or directory\n"
    program.write_text("print('not executable')")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 126
    assert f"does not start: Permission denied; to run a Python program: python {program}\n" in done.stderr


def test_info_names_the_cann_the_versions_and_the_devices():
    result = subprocess.run(
        [sys.executable, "-m", "cann_cpu", "info"], env=clean_environment(), capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    parts = [
        f"cann_cpu, {activation.HOME}",
        "no other CANN was found",
        version("torch_npu"),
        "npu:0",
        "npu:1",
        "custom_pypto (",
    ]
    assert [part for part in parts if part not in result.stdout] == []


def test_an_installed_wheel_makes_its_operator_package_known(tmp_path):
    package = tmp_path / "somebodys"
    (package / "opp" / "vendors" / "their_ops").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    metadata = tmp_path / "somebodys-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[ascend.operator_packages]\ntheir_ops = somebodys.opp\n")
    program = "from cann_cpu.activation import environment; print(environment()['ASCEND_CUSTOM_OPP_PATH'])"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment(PYTHONPATH=str(tmp_path), ASCEND_CUSTOM_OPP_PATH="/given/by/the/user"),
        capture_output=True,
        text=True,
        check=True,
    )
    paths = result.stdout.strip().split(":")
    assert paths[0] == "/given/by/the/user"
    assert str(package / "opp" / "vendors" / "their_ops") in paths


@pytest.mark.parametrize("first", ["import torch_npu", "sys.path.append(activation.PYTHON)"], ids=["torch_npu", "path"])
def test_pyacl_copies_and_says_what_is_wrong(tmp_path, first):
    out = run_program(
        tmp_path,
        f"""
        import sys
        from cann_cpu import activation
        {first}
        import acl
        from acl.rt import memcpy

        assert acl.init() == acl.rt.set_device(0) == 0 and acl.rt.get_device() == (0, 0)
        cores = [acl.rt.get_device_info(0, kind) for kind in (101, 201)]
        assert cores[0][1] == cores[1][1] == 0 < cores[0][0] < cores[1][0]
        device, code = acl.rt.malloc(64, 0)
        host, _ = acl.rt.malloc_host(64)
        data = b"some bytes"
        assert code == 0 and memcpy(device, 64, acl.util.bytes_to_ptr(data), 10, 1) == 0
        assert memcpy(host, 64, device, 10, 2) == 0
        print(acl.util.ptr_to_bytes(host, 10))
        assert memcpy(host, 4, device, 10, 2) != 0
        print(acl.get_recent_err_msg())
        try:
            memcpy(host, device)
        except TypeError as error:
            print(error)
        """,
    )
    assert out.splitlines() == [
        "b'some bytes'",
        "aclrtMemcpy: count 10 is more than destMax 4",
        "acl.rt.memcpy takes 5 arguments, 2 were given",
    ]
