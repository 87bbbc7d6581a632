"""What stands in for CUDA's device guard in traces on a machine without a GPU."""

from __future__ import annotations

import functools
import threading

import torch


@functools.cache
def keep_device_guard() -> None:
    """Has a thread that does not end own the stand-in.

    In PyTorch 2.11 it belongs to the thread whose trace first asks for it, and is gone with that
    thread, while all others go on using it.
    """
    if torch.cuda.is_available():
        return
    if threading.current_thread() is threading.main_thread():
        torch._C._ensureCUDADeviceGuardSet()
        return
    owned = threading.Event()

    def own() -> None:
        torch._C._ensureCUDADeviceGuardSet()
        owned.set()
        threading.Event().wait()

    threading.Thread(target=own, name="trident-device-guard", daemon=True).start()
    owned.wait()
