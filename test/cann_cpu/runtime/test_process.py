# SPDX-License-Identifier: Apache-2.0
"""Devices and contexts, the start and end of a process, fork; each in a separate process."""

import os
import re
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


STREAMS_AND_GRAPHS = """
acl.call("aclrtSetDevice", 0)
streams = [acl.make("aclrtCreateStream") for _ in range(2)]
event = acl.make("aclrtCreateEventExWithFlag", acl.EVENT_SYNC)

def capture():
    acl.call("aclmdlRICaptureBegin", streams[0], 0)
    for first, second in (streams, streams[::-1]):
        acl.call("aclrtRecordEvent", event, first)
        acl.call("aclrtStreamWaitEvent", second, event)
    return acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, streams[0])

def failed_capture():
    try:
        capture()
    except acl.AclError as error:
        assert error.code == acl.RT_NO_STREAM_RESOURCE
        for stream in streams:
            assert acl.capture_status(stream) == (acl.CAPTURE_NONE, None)
            acl.call("aclrtSynchronizeStream", stream)
        return error.message

graphs = [capture(), capture()]
message = failed_capture()
assert "EL0009): The stream resources are insufficient: device 0 has" in message
acl.call("aclmdlRIDestroy", graphs.pop())
graphs.append(capture())
assert failed_capture() == message
acl.call("aclmdlRIExecuteAsync", graphs[0], streams[0])
acl.call("aclrtSynchronizeStream", streams[0])
while not failure("aclrtCreateStream", ctypes.byref(ctypes.c_void_p())):
    pass
assert failure("aclrtCreateStream", ctypes.byref(ctypes.c_void_p())).code == acl.RT_NO_STREAM_RESOURCE
acl.call("aclrtDestroyStream", streams[1])
acl.make("aclrtCreateStream")
acl.call("aclrtSetDevice", 1)
acl.make("aclrtCreateStream")
print(message.split(":")[0])
"""


@pytest.mark.parametrize("limit, function", [(6, "aclmdlRICaptureBegin"), (7, "aclmdlRICaptureEnd")])
def test_a_device_has_so_many_streams_and_captured_graphs_keep_some(limit, function):
    assert printed(STREAMS_AND_GRAPHS, CANN_CPU_STREAMS=str(limit)) == [function]


def test_a_device_has_as_many_streams_as_an_npu():
    program = """
    acl.call("aclrtSetDevice", 0)
    streams = 0
    while not (error := failure("aclrtCreateStream", ctypes.byref(ctypes.c_void_p()))):
        streams += 1
    print(streams, error.code)
    """
    assert printed(program) == ["1984", "207008"]
    program = 'acl.call("aclrtSetDevice", 0); acl.make("aclrtCreateStream")'
    assert 'CANN_CPU_STREAMS is "many"; expected a number from 0 to' in run(program, CANN_CPU_STREAMS="many").stderr


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
    variables = {"CANN_CPU_DEVICES": "4", "ASCEND_RT_VISIBLE_DEVICES": "3,1"}
    assert printed(program, **variables) == ["3", "1"]
    changed_later = 'acl.get("aclrtGetDeviceCount", ctypes.c_uint32); os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0"'
    assert printed(changed_later + textwrap.dedent(program), **variables) == ["3", "1"]


def test_a_device_is_the_same_one_whatever_its_number_in_the_process():
    program = """
        uuid = (ctypes.c_char * 16)()
        acl.call("aclrtDeviceGetUuid", 0, uuid)
        print(uuid.raw.hex(), acl.get("aclrtGetDeviceInfo", ctypes.c_int64, 0, 402))
    """
    first, second = (printed(program, ASCEND_RT_VISIBLE_DEVICES=visible) for visible in ("0", "1"))
    assert first[0] != second[0]
    assert (first[1], second[1]) == ("0", "1")
    assert printed(program, ASCEND_RT_VISIBLE_DEVICES="1,0") == second


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
        (" ", 100006, "is not JSON: line 1, column 2: "),
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
        ('{"dump": {"dump_list": [], "dump_path": "/tmp"}}', 200006, '"dump.dump_list" is not supported'),
        ('{"dump": {"dump_scene": "watcher"}}', 200006, '"dump.dump_scene" of watcher is not supported'),
        ('{"profiler": {"switch": "on"}}', 200006, '"profiler.switch" of on is not supported'),
        ('{"err_msg_mode": "2"}', 200006, '"err_msg_mode" of 2 is not supported'),
        ('{"err_msg_mode": ["1"]}', 200006, '"err_msg_mode" is not supported'),
        ('{"defaultDevice": {"device": "0"}}', 200006, '"defaultDevice.device" of 0 is not supported'),
        ('{"made_up": [1]}', 200006, '"made_up" is not supported'),
        ('{"defaultDevice": {"default_device": "99"}}', 107001, "there is no device 99"),
        ('{"defaultDevice": {"default_device"' + " " * 300_000 + ': "0" "1"}}', 100006, "expected '}'"),
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
    text = " ".join(printed(program))
    assert text.startswith(f"{code}: aclInit: {path}: ") and message in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"dump": {"dump_scene": "lite_exception"}, "defaultDevice": {"default_device": "0"}}',  # torch_npu's own
        '{"max_opqueue_num": "10000", "err_msg_mode": "0", "StackSize": {"aicore_stack_size": 32768}}',
        '{"dump": {"dump_debug": "off"}, "profiler": {"switch": "off"}}',
    ],
)
def test_a_configuration_that_asks_for_nothing_that_is_not_there_is_valid(tmp_path, text):
    (path := tmp_path / "acl.json").write_text(text)
    printed(f'acl.call("aclInit", {str(path)!r}.encode())')


@pytest.mark.parametrize(("mode", "expected"), [("0", "None"), ("1", "b'aclrtFree: ")])
def test_a_thread_is_given_the_message_of_another_where_the_configuration_shares_them(tmp_path, mode, expected):
    (path := tmp_path / "acl.json").write_text(f'{{"err_msg_mode": "{mode}"}}')
    program = f"""
        acl.call("aclInit", {str(path)!r}.encode())
        acl.call("aclrtSetDevice", 0)
        thread = threading.Thread(target=lambda: acl.library.aclrtFree(ctypes.c_void_p(1)))
        thread.start()
        thread.join()
        print(acl.library.aclGetRecentErrMsg())
        print(acl.library.aclGetRecentErrMsg())
    """
    first, second = run(program).stdout.splitlines()
    assert first.startswith(expected) and second == "None"


def test_init_and_finalize_come_in_pairs(tmp_path):
    program = f"""
        print(failure("aclFinalize").code)
        print(failure("aclInit", {str(tmp_path / "none.json")!r}.encode()).code)
        acl.call("aclInit", None)
        print(failure("aclInit", None).code)
        acl.call("aclFinalize")
        acl.call("aclInit", None)
        acl.call("aclFinalize")
        print(failure("aclFinalize").code)
    """
    assert printed(program) == ["100001", "100003", "100002", "100037"]


def test_packages_tell_their_versions_and_what_is_no_package_is_an_error():
    program = """
        for name in (b"runtime", b"ops_nn", b"ops-nn", b"driver", b"DRIVER"):
            version = ctypes.create_string_buffer(128)
            acl.call("aclsysGetVersionStr", name, version)
            print(version.value.decode())
        for name in (b"nonsense", b"firmware"):
            print(failure("aclsysGetVersionStr", name, ctypes.create_string_buffer(128)))
    """
    *versions, first, second = run(program).stdout.splitlines()
    assert versions == ["9.1.0", "9.1.0", "9.1.0", "25.5.0", "25.5.0"]
    assert first == "100003: aclsysGetVersionStr: there is no package nonsense"
    assert second == "100003: aclsysGetVersionStr: there is no package firmware"


def test_the_version_of_a_package_comes_in_parts():
    program = """
        parts = ctypes.create_string_buffer(128 + 4 * 64 + 128)
        acl.call("aclsysGetCANNVersion", 0, parts)
        print(*[parts.raw[begin : begin + 64].split(bytes(1))[0].decode() for begin in range(128, 128 + 256, 64)])
    """
    assert printed(program) == ["9", "1", "0", "0"]


@pytest.mark.parametrize(
    ("version", "parts"), [("8.5.0", "8 5 0 0"), ("8.3.RC1", "8 3 RC1 0"), ("9.0.0.beta2", "9 0 0 beta2")]
)
def test_a_variable_chooses_the_version(version, parts):
    program = """
        acl.call("aclInit", None)
        text = ctypes.create_string_buffer(128)
        acl.call("aclsysGetVersionStr", b"runtime", text)
        parts = ctypes.create_string_buffer(128 + 4 * 64 + 128)
        acl.call("aclsysGetCANNVersion", 0, parts)
        print(text.value.decode())
        print(*[parts.raw[begin : begin + 64].split(bytes(1))[0].decode() for begin in range(128, 128 + 256, 64)])
    """
    assert printed(program, CANN_CPU_VERSION=version) == [version, *parts.split()]


@pytest.mark.parametrize("version", ["9", "nine.one.0", "9.1.", "9.1.0 "])
def test_what_is_no_version_is_an_error_that_names_the_variable(version):
    message = f"100000: aclInit: CANN_CPU_VERSION is '{version}'; expected a version such as 9.1.0"
    assert run('print(failure("aclInit", None))', CANN_CPU_VERSION=version).stdout.startswith(message)


def test_torch_knows_the_version():
    program = "import torch, torch_npu; print(torch.version.cann, torch_npu.npu.utils.get_cann_version())"
    assert printed(program) == ["9.1.0", "9.1.0"]


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
        assert failure("aclrtSynchronizeStream", stream).code == acl.RT_CONTEXT_NULL
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
        assert "flags is not null" in failure(
            "aclrtGetPrimaryCtxState", 0, ctypes.byref(ctypes.c_uint32()), ctypes.byref(ctypes.c_int32())
        ).message
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
        acl.call("aclrtResetDeviceForce", 0)
        for name in ("aclrtResetDevice", "aclrtResetDeviceForce"):
            assert (error := failure(name, 0)).code == 507007 and "is not set, or was reset already" in error.message
    """)


def test_a_reset_waits_for_the_streams_of_its_context_alone_and_leaves_what_was_allocated_since(tasks):
    printed(f"""
        import time

        tasks = ctypes.CDLL({tasks._name!r})
        elsewhere, here = ctypes.c_int64(0), ctypes.c_int64(0)
        acl.call("aclrtSetDevice", 1)
        other = acl.make("aclrtCreateStream")
        acl.check(acl.status(tasks.launch_rendezvous, other, ctypes.byref(elsewhere), 2))
        acl.call("aclrtSetDevice", 0)
        old = acl.make("aclrtMalloc", 512, 0)
        acl.check(acl.status(tasks.launch_rendezvous, acl.make("aclrtCreateStream"), ctypes.byref(here), 2))
        thread = threading.Thread(target=acl.call, args=("aclrtResetDeviceForce", 0))
        thread.start()
        active = ctypes.c_int32(1)
        while active.value:
            acl.call("aclrtGetPrimaryCtxState", 0, None, ctypes.byref(active))
        time.sleep(0.05)
        assert thread.is_alive()
        acl.call("aclrtSetDevice", 0)
        memory = acl.make("aclrtMalloc", 512, 0)
        here.value = 2
        thread.join(10)
        assert not thread.is_alive() and elsewhere.value == 1
        acl.call("aclrtMemset", memory, 512, 1, 512)
        assert acl.read(memory, 512) == bytes([1]) * 512
        assert failure("aclrtFree", old)
        acl.call("aclrtFree", memory)
        elsewhere.value = 2
    """)


@pytest.mark.parametrize(
    ("make", "end"),
    [("aclrtSetDevice(0)", '"aclrtResetDevice", 0'), ("aclrtSetDevice(0)", '"aclrtResetDeviceForce", 0'),
     ("aclrtCreateContext(ctypes.byref(context), 0)", '"aclrtDestroyContext", context')],
)  # fmt: skip
def test_the_end_of_a_device_or_context_waits_for_what_its_streams_were_given(tasks, make, end):
    program = f"""
        tasks = ctypes.CDLL({tasks._name!r})
        context, counter, arrived = ctypes.c_void_p(), ctypes.c_int64(0), ctypes.c_int64(0)
        acl.check(acl.library.{make})
        stream, other = acl.make("aclrtCreateStream"), acl.make("aclrtCreateStream")
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(arrived), 2))
        event = acl.make("aclrtCreateEventExWithFlag", acl.EVENT_SYNC)
        for each, following in ((stream, other), (other, None), (None, stream)):
            for _ in range(3):
                acl.check(acl.status(tasks.launch_increment, each, ctypes.byref(counter)))
            acl.call("aclrtRecordEvent", event, each)
            acl.call("aclrtStreamWaitEvent", following, event)
        threading.Timer(0.2, lambda: setattr(arrived, "value", 2)).start()
        acl.call({end})
        print(counter.value)
    """
    assert printed(program) == ["9"]


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
        for attribute, value in {**dict.fromkeys([*range(202, 213), 401, 406, 501], 0), 601: 2201}.items():
            assert acl.get("aclrtGetDeviceInfo", ctypes.c_int64, 0, attribute) == value, attribute
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
@pytest.mark.parametrize(
    "end",
    ["", 'acl.call("aclFinalize")', 'assert failure("aclrtResetDeviceForce", 0).code == 507007', "sys.exit(0)"],
)
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


@pytest.mark.parametrize("level, shown", [("1", True), ("2", False), (None, False), ("abc", False)])
def test_the_log_is_printed_when_the_variables_ask_for_it(level, shown):
    program = 'acl.library.aclAppLog(1, b"function", b"file.cpp", 12, b"%s is %d", b"answer", 42)'
    variables = {"ASCEND_SLOG_PRINT_TO_STDOUT": "1"} | ({"ASCEND_GLOBAL_LOG_LEVEL": level} if level else {})
    result = run(program, **variables)
    line = (
        r"\[INFO\] APP\(\d+,python[\d.]*\):[-\d]{10}-[:\d]{8}\.\d{3}\.\d{3} \[file.cpp:12\]\d+ function: answer is 42\n"
    )
    assert bool(re.fullmatch(line, result.stdout)) == shown
    newer = {"ASCEND_LOG_PRINT_TO_STDOUT": "0"}
    assert run(program).stdout == run(program, **variables, **newer).stdout == ""


FAILS = "for device in (99, 99): acl.library.aclrtSetDevice(device)"


def test_an_error_is_on_stderr_once():
    said = run(FAILS)
    assert re.fullmatch(r"\[ERROR\] aclrtSetDevice: .*99.*\n", said.stderr)
    assert said.stdout == ""
    assert run(FAILS, ASCEND_GLOBAL_LOG_LEVEL="4").stderr == ""
    assert run(f"import torch_npu\n{FAILS}").stderr.count("[ERROR]") == 0  # it raises them


def test_an_error_is_on_stdout_or_in_a_file_each_time_as_cann_writes_it(tmp_path):
    line = r"\[ERROR\] ASCENDCL\(\d+,\S+\):\S+ \[\S+:\d+\]\d+ aclrtSetDevice: .*99.*\n"
    said = run(FAILS, ASCEND_SLOG_PRINT_TO_STDOUT="1")
    assert said.stderr == ""
    assert len(re.findall(line, said.stdout)) == 2
    said = run(FAILS, ASCEND_PROCESS_LOG_PATH=str(tmp_path / "log"))
    assert said.stdout == ""
    assert said.stderr.count("[ERROR]") == 1
    (file,) = tmp_path.glob("log/debug/plog/plog-*_*.log")
    assert len(re.findall(line, file.read_text())) == 2
    assert "ASCEND_PROCESS_LOG_PATH: /proc/no/debug" in run(FAILS, ASCEND_PROCESS_LOG_PATH="/proc/no").stderr


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
@pytest.mark.parametrize(
    ("context", "end"),
    [('acl.make("aclrtCreateContext", 0)',
      'acl.call("aclrtSetCurrentContext", primary); acl.call("aclrtResetDeviceForce", 0)'),
     ("", 'acl.call("aclrtDestroyStreamForce", stream); acl.call("aclrtFree", memory)')],
)  # fmt: skip
def test_memory_that_a_kernel_uses_is_not_given_back(tasks, context, end):
    """One in another context, which a reset does not wait for, or in a stream whose end has been waited for enough."""
    program = with_a_kernel_at_work(
        tasks,
        f"""
{end}
acl.call("aclrtSetDevice", 0)
print(acl.memory_info()[0] == total, arrived.value)
arrived.value = 2
""",
        context=context,
    )
    assert printed(program) == ["True", "1"]


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
