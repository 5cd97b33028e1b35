# SPDX-License-Identifier: Apache-2.0
"""Devices and contexts, the start and end of a process, fork; each in a process of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = f"""
import ctypes, importlib.util, os, sys, threading
spec = importlib.util.spec_from_file_location("acl", {str(Path(__file__).with_name("acl.py"))!r})
acl = importlib.util.module_from_spec(spec)
spec.loader.exec_module(acl)

def failure(name, *arguments):
    try:
        acl.call(name, *arguments)
    except acl.AclError as error:
        return error
"""


def run(program, timeout=60, **variables):
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)],
        env=os.environ | variables, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def printed(program, **variables):
    result = run(program, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


LEAKING = pytest.mark.unchecked("memory", reason="ends with memory that it has not given back")

COUNT = 'print(acl.get("aclrtGetDeviceCount", ctypes.c_uint32))'


@pytest.mark.parametrize(
    "variables, count",
    [({}, 2), ({"CANN_CPU_DEVICES": "5"}, 5), ({"ASCEND_RT_VISIBLE_DEVICES": "1"}, 1),
     ({"ASCEND_RT_VISIBLE_DEVICES": "1,0"}, 2), ({"ASCEND_RT_VISIBLE_DEVICES": "0,7,1"}, 1),
     ({"ASCEND_RT_VISIBLE_DEVICES": "3,1", "CANN_CPU_DEVICES": "4"}, 2)],
)  # fmt: skip
def test_the_number_of_devices_is_what_the_variables_say(variables, count):
    assert printed(COUNT, **variables) == [str(count)]


@pytest.mark.parametrize("variables", [{"CANN_CPU_DEVICES": "0"}, {"ASCEND_RT_VISIBLE_DEVICES": ""}])
def test_no_device_is_an_error_of_its_own(variables):
    assert printed('print(failure("aclrtGetDeviceCount", ctypes.byref(ctypes.c_uint32())).code)', **variables) == [
        "207004"
    ]


@pytest.mark.parametrize("setting", ["two", "-1", "17", "1.5"])
def test_a_number_of_devices_that_is_none_is_rejected(setting):
    result = run(COUNT, CANN_CPU_DEVICES=setting)
    assert result.returncode != 0 and f'CANN_CPU_DEVICES is "{setting}"' in result.stderr


def test_visible_devices_keep_their_own_numbers():
    program = """
        print(acl.get("aclrtGetLogicDevIdByUserDevId", ctypes.c_int32, 0))
        print(acl.get("aclrtGetUserDevIdByLogicDevId", ctypes.c_int32, 1))
    """
    assert printed(program, CANN_CPU_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES="3,1") == ["3", "1"]


def test_without_a_device_calls_fail_and_say_what_to_do():
    program = """
        for name, arguments in {
            "aclrtMalloc": (ctypes.byref(ctypes.c_void_p()), 16, 0),
            "aclrtCreateStream": (ctypes.byref(ctypes.c_void_p()),),
            "aclrtGetDevice": (ctypes.byref(ctypes.c_int32()),),
            "aclrtSynchronizeDevice": (),
            "aclrtGetCurrentContext": (ctypes.byref(ctypes.c_void_p()),),
        }.items():
            error = failure(name, *arguments)
            assert error.code == acl.RT_CONTEXT_NULL and "call aclrtSetDevice" in error.message, name
    """
    printed(program)


def test_the_configurations_default_device_serves_threads_that_set_none(tmp_path):
    path = tmp_path / "acl.json"
    path.write_text('{"defaultDevice": {"default_device": "1"}}')
    program = f"""
        def is_started():
            active = ctypes.c_int32()
            acl.call("aclrtGetPrimaryCtxState", 1, None, ctypes.byref(active))
            return active.value

        acl.call("aclInit", {str(path)!r}.encode())
        print(acl.get("aclrtGetDevice", ctypes.c_int32))
        print(is_started())
        acl.call("aclrtSynchronizeDevice")
        print(is_started())
        acl.call("aclFinalize")
        print(failure("aclrtGetDevice", ctypes.byref(ctypes.c_int32())).code)
    """
    assert printed(program) == ["1", "0", "1", "107002"]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", 100006, "line 1, column 1 is no JSON: expected a value"),
        ("[]", 100006, "expected an object"),
        ('{"defaultDevice": "0"}', 100006, "expected an object"),
        *(
            (
                f'{{"defaultDevice": {{"default_device": {device}}}}}',
                100006,
                "default_device is not the number of a device",
            )
            for device in ['"one"', '"99999999999999999999"', "-1", "[0]"]
        ),
        ('{"defaultDevice": {"default_device": "99"}}', 107001, "there is no device 99"),
        ('{"defaultDevice": {"default_device"' + " " * 300_000 + ': "0" "1"}}', 100006, "expected , or }"),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path, text, code, message):
    path = tmp_path / "acl.json"
    path.write_text(text)
    program = f"""
        error = failure("aclInit", {str(path)!r}.encode())
        print(error)
        acl.call("aclInit", None)
    """
    told = " ".join(printed(program))
    assert told.startswith(f"{code}: aclInit: {path}: ") and message in told


def test_init_and_finalize_come_in_pairs(tmp_path):
    program = f"""
        print(failure("aclFinalize").code)
        print(failure("aclInit", {str(tmp_path / "none.json")!r}.encode()).code)
        acl.call("aclInit", None)
        print(failure("aclInit", None).code)
        acl.call("aclFinalize")
        acl.call("aclInit", None)
        acl.call("aclFinalize")
    """
    assert printed(program) == ["100001", "100003", "100002"]


def test_contexts_are_per_thread_and_end_with_their_streams():
    printed("""
        acl.call("aclrtSetDevice", 0)
        primary = acl.get("aclrtGetCurrentContext", ctypes.c_void_p)
        created = acl.make("aclrtCreateContext", 1)
        assert acl.get("aclrtGetCurrentContext", ctypes.c_void_p) == created
        assert acl.get("aclrtGetDevice", ctypes.c_int32) == 1
        stream = acl.make("aclrtCreateStream")

        def elsewhere():
            assert failure("aclrtGetDevice", ctypes.byref(ctypes.c_int32())).code == acl.RT_CONTEXT_NULL
            acl.call("aclrtSetCurrentContext", primary)
            assert acl.get("aclrtGetDevice", ctypes.c_int32) == 0

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert failure("aclrtDestroyContext", primary).code == acl.INVALID_PARAM
        acl.call("aclrtDestroyContext", created)
        assert failure("aclrtSynchronizeStream", stream).code == acl.RT_INVALID_HANDLE
        assert failure("aclrtSetCurrentContext", created).code == acl.RT_INVALID_HANDLE
        assert failure("aclrtGetDevice", ctypes.byref(ctypes.c_int32())).code == acl.RT_CONTEXT_NULL
    """)


@LEAKING
def test_a_device_is_released_with_the_last_reset():
    printed("""
        def is_active():
            active = ctypes.c_int32(-1)
            acl.call("aclrtGetPrimaryCtxState", 0, None, ctypes.byref(active))
            return active.value

        assert is_active() == 0
        acl.call("aclrtSetDevice", 0)
        acl.call("aclrtSetDevice", 0)
        free, total = acl.memory_info()
        assert free == total and is_active() == 1
        memory = acl.make("aclrtMalloc", 1 << 20, 0)
        stream = acl.make("aclrtCreateStream")
        acl.call("aclrtResetDevice", 0)
        assert acl.memory_info()[0] == total - (1 << 20) and is_active() == 1
        acl.call("aclrtResetDevice", 0)
        assert is_active() == 0
        acl.call("aclrtSetDevice", 0)
        assert acl.memory_info()[0] == total
        assert failure("aclrtFree", memory) and failure("aclrtSynchronizeStream", stream)
    """)


def test_the_device_describes_itself():
    printed("""
        acl.library.aclrtGetSocName.restype = ctypes.c_char_p
        assert acl.library.aclrtGetSocName() == b"Ascend910B3"
        values = {n: acl.get("aclrtGetDeviceInfo", ctypes.c_int64, 0, n) for n in (101, 201, 301)}
        assert values[101] == acl.get("aclGetDeviceCapability", ctypes.c_int64, 0, 0)
        assert values[201] == acl.get("aclGetDeviceCapability", ctypes.c_int64, 0, 1)
        acl.call("aclrtSetDevice", 0)
        assert values[301] == acl.memory_info()[1]
        assert "not supported" in failure("aclrtGetDeviceInfo", 0, 407, ctypes.byref(ctypes.c_int64())).message
        uuids = {bytes(read_uuid) for read_uuid in [(ctypes.c_char * 16)(), (ctypes.c_char * 16)()]}
        found = [(ctypes.c_char * 16)() for _ in range(2)]
        for device, uuid in enumerate(found):
            acl.call("aclrtDeviceGetUuid", device, uuid)
        assert found[0].raw != found[1].raw
    """)


STUCK = """
    acl.call("aclInit", None)
    acl.call("aclrtSetDevice", 0)
    stream, other = acl.make("aclrtCreateStream"), acl.make("aclrtCreateStream")
    memory = acl.make("aclrtMalloc", 8, 0)
    acl.call("aclrtMemset", memory, 8, 0, 8)
    event = acl.make("aclrtCreateEventExWithFlag", 1)
    acl.call("aclrtValueWait", memory, 1, 1, stream)
    acl.call("aclrtRecordEvent", event, stream)
    acl.call("aclrtStreamWaitEvent", other, event)
"""


@LEAKING
@pytest.mark.parametrize("end", ["", 'acl.call("aclFinalize")', 'acl.call("aclrtResetDeviceForce", 0)', "sys.exit(0)"])
def test_a_process_ends_though_streams_wait_for_ever(end):
    assert run(textwrap.dedent(STUCK) + end, timeout=20).returncode == 0


def test_at_the_end_no_task_meets_destroyed_static_objects(tasks):
    program = f"""
        tasks = ctypes.CDLL({tasks._name!r})
        acl.call("aclrtSetDevice", 0)
        stream = acl.make("aclrtCreateStream")
        for _ in range(1000):
            acl.status(tasks.launch_user_of_statics, stream)
    """
    assert run(program, timeout=20).returncode == 0


@LEAKING
def test_a_process_ends_while_a_capture_is_underway():
    program = """
        acl.call("aclInit", None)
        acl.call("aclrtSetDevice", 0)
        stream = acl.make("aclrtCreateStream")
        acl.call("aclmdlRICaptureBegin", stream, 0)
        acl.call("aclrtMemsetAsync", acl.make("aclrtMalloc", 8, 0), 8, 0, 8, stream)
    """
    assert run(program + '    acl.call("aclFinalize")\n', timeout=20).returncode == 0
    assert run(program, timeout=20).returncode == 0


FORK = """
    {before}
    child = os.fork()
    if child == 0:
        {child}
        {end}
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    {after}
"""
USE = "; ".join(
    [
        'acl.call("aclrtSetDevice", 0)',
        'memory = acl.make("aclrtMalloc", 8, 0)',
        'acl.call("aclrtMemsetAsync", memory, 8, 0, 8, None)',
        'acl.call("aclrtSynchronizeDevice")',
        'acl.call("aclrtFree", memory)',
    ]
)


@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(0)"])
def test_a_forked_child_that_leaves_the_device_alone_ends_cleanly(end):
    program = FORK.format(before=USE, child="pass", end=end, after='acl.call("aclrtSynchronizeDevice")')
    assert run(program, timeout=20).returncode == 0


def test_a_child_forked_before_the_device_was_used_can_use_it():
    assert run(FORK.format(before="pass", child=USE, end="os._exit(0)", after=USE), timeout=20).returncode == 0


def test_a_child_forked_afterwards_is_told_to_be_spawned():
    child = 'error = failure("aclrtSetDevice", 0); print(error.message, flush=True); acl.library.aclFinalize()'
    result = run(FORK.format(before=USE, child=child, end="sys.exit(0)", after=""), timeout=20)
    assert result.returncode == 0, result.stderr
    assert "aclrtSetDevice: this process was forked after its parent had started using the NPU" in result.stdout


@pytest.mark.parametrize("level, shown", [("1", True), ("2", False), (None, False)])
def test_the_log_is_printed_when_the_variables_ask_for_it(level, shown):
    program = 'acl.library.aclAppLog(1, b"function", b"file.cpp", 12, b"%s is %d", b"answer", 42)'
    variables = {"ASCEND_SLOG_PRINT_TO_STDOUT": "1"} | ({"ASCEND_GLOBAL_LOG_LEVEL": level} if level else {})
    result = run(program, **variables)
    assert ("[INFO] file.cpp:12 function: answer is 42" in result.stdout) == shown
    assert run(program).stdout == ""


WATCHED = pytest.mark.unchecked(
    "memory", "schedule", reason="a kernel and the host wait for each other in device memory"
)

# The counter is in the memory that is given back, which is large enough to be unmapped then.
WORKING = """
import time
tasks = ctypes.CDLL({tasks!r})
acl.call("aclrtSetDevice", 0)
primary = acl.get("aclrtGetCurrentContext", ctypes.c_void_p)
{context}
stream = acl.make("aclrtCreateStream")
total = acl.memory_info()[0]
memory = acl.make("aclrtMallocAlign32", 64 << 20, 0)
arrived = ctypes.c_int64.from_address(memory)
arrived.value = 0
acl.check(acl.status(tasks.launch_rendezvous, stream, memory, 2))
while arrived.value == 0:
    time.sleep(0.001)
"""


def with_a_kernel_at_work(tasks, program, context=""):
    return WORKING.format(tasks=tasks._name, context=context) + program


@WATCHED
def test_resetting_a_device_waits_for_the_streams_of_other_contexts_before_it_frees_memory(tasks):
    program = with_a_kernel_at_work(
        tasks,
        """
acl.call("aclrtSetCurrentContext", primary)
reset = threading.Thread(target=acl.call, args=("aclrtResetDeviceForce", 0))
reset.start()
reset.join(0.5)
print(reset.is_alive())
arrived.value = 2
reset.join(10)
acl.call("aclrtSetDevice", 0)
print(acl.memory_info()[0] == total)
""",
        context='acl.make("aclrtCreateContext", 0)',
    )
    assert printed(program) == ["True", "True"]


@WATCHED
@pytest.mark.parametrize("end", ['acl.call("aclrtResetDeviceForce", 0)', 'acl.call("aclrtDestroyStreamForce", stream)'])
def test_memory_that_a_kernel_uses_is_not_given_back_when_patience_with_it_ends(tasks, end):
    """Streams that are destroyed by force are waited for, but not for ever."""
    program = with_a_kernel_at_work(
        tasks,
        f"""
{end}
acl.call("aclrtSetDevice", 0)
acl.call("aclrtFree", memory)
print(arrived.value)
arrived.value = 2
""",
    )
    assert printed(program) == ["1"]


@pytest.mark.parametrize(
    "call",
    ['ctypes.CDLL(os.path.join(acl.activation.LIBRARIES, "libacl_tdt_channel.so")).acltdtCreateDataItem('
     "0, (ctypes.c_int64 * 1)(), ctypes.c_size_t(1 << 59), 0, None, ctypes.c_size_t(0))",
     'acl.op_compiler.aclopCompileAndExecute(b"Add", 1, None, None, 0, None, None, None, 0, 0, None, None)',
     'acl.op_compiler.aclopSetAttrListInt(attr, b"name", 2**31 - 1, (ctypes.c_int64 * 1)())',
     'acl.op_compiler.aclopSetAttrListListInt(attr, b"name", 1, (ctypes.c_int * 1)(2**31 - 1), '
     "(ctypes.c_void_p * 1)(attr))"],
)  # fmt: skip
def test_no_exception_leaves_an_entry_point(call):
    program = f"""
import resource
acl.op_compiler.aclopCreateAttr.restype = ctypes.c_void_p
attr = ctypes.c_void_p(acl.op_compiler.aclopCreateAttr())
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
{call}
print(len(acl.library.aclGetRecentErrMsg()) > 0)
"""
    result = run(program)
    assert result.stdout.split() == ["True"], result.stderr
