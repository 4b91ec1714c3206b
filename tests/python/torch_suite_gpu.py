"""Runs a test of GPUs on the CPU: what it puts on a GPU stays in the host's memory.

PyTorch tests most of DDP, and the operations on single tensors, on GPUs alone. What
they check (gradients, buckets, buffers, hooks, errors) is the same on the CPU. Here
`cuda` and the number of a GPU mean the CPU, and DDP gets no `device_ids`.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")


def _host(value: Any) -> Any:
    """Returns the CPU for what names a GPU; all else as it is."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return _CPU
    if isinstance(value, str) and value.startswith("cuda"):
        return _CPU
    return _CPU if isinstance(value, int) and not isinstance(value, bool) else value


class _HostMemory(TorchFunctionMode):
    """Every tensor is made in, and stays in, the host's memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *map(_host, args[1:]))
        if "device" in kwargs:
            kwargs["device"] = _host(kwargs["device"])
        return func(*args, **kwargs)


def _module_to(original: Callable[..., Any]) -> Callable[..., Any]:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs = {name: _host(value) for name, value in kwargs.items()}
        return original(self, *map(_host, args), **kwargs)

    return to


def _made_without_gpus(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **more: Any
    ):
        return original(self, module, **more)

    return init


@contextlib.contextmanager
def gpus_are_the_host(module: Any) -> Iterator[None]:
    """Inside, the tests of `module` need no GPU."""
    changes = (
        mock.patch.object(torch.nn.Module, "cuda", lambda self, device=None: self),
        mock.patch.object(torch.nn.Module, "to", _module_to(torch.nn.Module.to)),
        mock.patch.object(
            DistributedDataParallel,
            "__init__",
            _made_without_gpus(DistributedDataParallel.__init__),
        ),
        mock.patch("torch.cuda.set_device", lambda device: None),
        mock.patch("torch.cuda.synchronize", lambda device=None: None),
        mock.patch("torch.cuda.current_device", lambda: 0),
        mock.patch("torch.cuda.manual_seed", torch.manual_seed),
        mock.patch("torch.accelerator.set_device_index", lambda device: None),
        mock.patch.object(
            module, "init_multigpu_helper", lambda ranks, _: {rank: [rank] for rank in range(ranks)}
        ),
    )
    with contextlib.ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        stack.enter_context(_HostMemory())
        yield
