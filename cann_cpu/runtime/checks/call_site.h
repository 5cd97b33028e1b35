// SPDX-License-Identifier: Apache-2.0
// The place in the program that a call comes from, and the lock of its Python.
#pragma once

#include <string>
#include <string_view>

namespace cann_cpu {

// "train.py:12 in step", of the innermost function that is not PyTorch's or NumPy's, nor hides itself from tracebacks
// as pytest has it (a variable __tracebackhide__); empty in a thread without Python. The same place is the same string,
// which stays. Takes the GIL: not to be called with a lock held.
const std::string& python_call_site();

// "program+0x1189 in main", of the innermost function that is neither the runtime's nor the C library's; addr2line has
// the line.
std::string native_call_site();

// Whether the thread is in a function of a library's whose symbol begins so.
bool is_within(std::string_view symbol);

// The one where the process has Python, the other where not.
std::string call_site();

// The same, for functions that are called with locks held, such as those of PyTorch's allocators: who has the GIL may
// be waiting for that lock. So they wait for two seconds, and then the place of Python is empty.
const std::string& python_call_site_nonblocking();
std::string call_site_nonblocking();

// Whether the calling thread has the GIL.
bool has_gil();

}  // namespace cann_cpu
