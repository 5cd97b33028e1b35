"""CANN on the CPU: the libraries below torch_npu and torchair, served without an NPU."""
