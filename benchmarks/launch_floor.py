"""The driver's floor: what cuLaunchKernelEx alone costs the host, for a loaded Triton kernel.

A few lines of C++, compiled when needed, launch the kernel in a loop with parameters that are
packed beforehand. Whatever launches the same kernels cannot be faster without a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import statistics
import subprocess
import tempfile
from typing import Any

import torch

SOURCE = r"""
#include <dlfcn.h>

#include <chrono>

namespace {

// CUlaunchConfig of the CUDA driver's interface, without attributes.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  void* attributes;
  unsigned num_attributes;
};

using Launch = int (*)(const LaunchConfig*, void* function, void** params, void** extra);
using Synchronize = int (*)(void* stream);

}  // namespace

// Launches `count` times from an idle stream, `repeat` times over; each round's microseconds go to
// `out`. Returns the driver's first error, -1 where libcuda cannot be used, or 0.
extern "C" int launch_rounds(void* function, unsigned grid, unsigned threads,
                             unsigned shared_bytes, void* stream, void** params, int count,
                             int repeat, double* out) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return -1;
  const auto launch = reinterpret_cast<Launch>(dlsym(library, "cuLaunchKernelEx"));
  const auto synchronize = reinterpret_cast<Synchronize>(dlsym(library, "cuStreamSynchronize"));
  if (launch == nullptr || synchronize == nullptr) return -1;
  const LaunchConfig config{{grid, 1, 1}, {threads, 1, 1}, shared_bytes, stream, nullptr, 0};
  for (int round = 0; round < repeat; ++round) {
    if (const int status = synchronize(stream)) return status;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      if (const int status = launch(&config, function, params, nullptr)) return status;
    }
    const auto elapsed = std::chrono::steady_clock::now() - start;
    out[round] = std::chrono::duration<double, std::micro>(elapsed).count();
  }
  return synchronize(stream);
}
"""


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled loop.

    Raises:
        subprocess.CalledProcessError: there is no working C++ compiler (``CXX``, default ``g++``).
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "floor.cpp"), pathlib.Path(folder, "floor.so")
        source.write_text(SOURCE)
        compiler = os.environ.get("CXX", "g++").split()
        flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-o", str(target), str(source), "-ldl"]
        subprocess.run([*compiler, *flags], check=True)
        return ctypes.CDLL(str(target))


def floor_us(kernel: Any, grid: int, arguments: list[Any], count: int, repeat: int = 300) -> float:
    """Median host microseconds of `count` launches in a row.

    Args:
        kernel: what ``jit_function[grid](...)`` returned: compiled and loaded.
        grid: programs along the first axis.
        arguments: the kernel's run-time arguments in order, tensors and 32-bit integers.
    """
    values: list[Any] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            values.append(ctypes.c_uint64(argument.data_ptr()))
        else:
            values.append(ctypes.c_int32(argument))
    values += [ctypes.c_uint64(0)] * 2  # Triton's scratch pointers, where the kernel has them
    params = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    out = (ctypes.c_double * repeat)()
    status = library().launch_rounds(
        ctypes.c_void_p(kernel.function),
        grid,
        32 * kernel.metadata.num_warps,
        kernel.metadata.shared,
        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        params,
        count,
        repeat,
        out,
    )
    if status:
        raise RuntimeError(f"cuLaunchKernelEx failed with CUresult {status}")
    return statistics.median(out)
