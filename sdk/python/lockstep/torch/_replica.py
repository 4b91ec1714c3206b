"""A replica of a model that trains on when other ranks of its job are lost."""

from __future__ import annotations

import hashlib
import io
import random
import weakref
from typing import Any, Callable, Optional, Protocol, Sequence, Union

import torch

from .. import _failed_process, _group, _library, _recovery
from .. import _session as sessions
from ..errors import Error, error_for
from ._gradients import Gradients, on_host
from ._replica_checks import (
    check_alike,
    check_call,
    check_layout,
    check_loss,
    check_model,
    check_parts,
    traits,
)
from ._shards import ShardGradients, assign
from ._store import bind_address

_DIGEST_BYTES = 16


class Stateful(Protocol):
    """What a scheduler, a sampler or a data loader with a state has."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any) -> Any: ...


class Replica:
    """One rank's copy of a model: trains with the others, and outlives them.

    Each ``step`` computes gradients here, averages them over all ranks and runs
    the optimizer. When a rank is lost, lockstep starts it again; the other
    processes stay, give it their state and do the step again. No committed step
    is lost, and at most one is computed again.

        replica = lockstep.torch.Replica(model, optimizer, scheduler=scheduler)
        while replica.committed < steps:
            batch = data[replica.committed * replica.world_size + replica.rank]
            loss = replica.step(lambda: loss_fn(model(batch.x), batch.y))

    The model's gradients lie in buckets of the replica, so do not wrap the model
    in DistributedDataParallel. Parameters are floats, on the CPU or a GPU. Those of
    a GPU are reduced in the host's memory, so that a recovery needs no NCCL.

    Attributes:
      rank, world_size: of this process in its job.
      shard: the part of the global batch, one of world_size, that ``compute`` is to
        compute now: rank, and where elastic also those of ranks that are away.
      shards: those that this process computes in each step now.
      microbatch: the part of the shard that ``compute`` is to compute now, one of
        ``step``'s ``accumulate``.
      recoveries: how many recoveries this process has been through.
      redone: steps that it computed again because of them.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        scheduler: Optional[Any] = None,
        states: Sequence[Stateful] = (),
        committed: int = 0,
        seed: Optional[int] = None,
        elastic: bool = False,
        hold: float = 600.0,
        timeout: float = 300.0,
    ) -> None:
        """All ranks start with rank 0's state, or with the state of the ranks that train.

        Args:
          model: its parameters and buffers are part of the state.
          optimizer: runs in ``step``.
          scheduler: of the learning rate; it makes a step after the optimizer.
          states: what else belongs to the state: a sampler, a gradient scaler.
          committed: steps in the state that was loaded from a checkpoint.
          seed: of torch's random numbers, which are then drawn anew in each step
            from seed, step and rank: so a step that is computed again, or by a new
            process, is the same to the bit. None: they are left alone.
          elastic: train on while ranks are away (``submit --elastic``): the others
            compute their shards, and the result is the same to the bit.
          hold: seconds that this process waits for a lost rank to be back.
          timeout: seconds of one reduction.
        """
        check_parts(optimizer, scheduler, states)
        session = sessions.session_for_recovery()
        check_model(model, session.world_size)
        if session in _claimed:
            raise error_for("FAILED_PRECONDITION", "this process has its Replica: it makes one")
        self._session = session
        self.rank = session.rank or 0
        self.world_size = session.world_size
        self._model = model
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._states = list(states)
        self._committed = committed
        self._seed = seed
        # The optimizer runs: the state is that of no step.
        self._updates = False
        self.recoveries = 0
        self.redone = 0
        self.shard = self.rank
        self.shards: tuple[int, ...] = (self.rank,)
        self.microbatch = 0
        self._gradients: Union[Gradients, ShardGradients] = (
            ShardGradients(model, self.world_size, self.rank) if elastic else Gradients(model)
        )
        self._own = _OwnShard()
        _claimed.add(session)
        if session.world_size > 1:
            _failed_process.watch()
        self._member = _recovery.Membership(
            session,
            bind_address=bind_address(),
            forming_timeout_s=hold,
            operation_timeout_s=timeout,
            hold_s=hold,
            elastic=elastic,
            on_away=self._drop,
            on_parked=self._prepare,
        )
        # At the very start only rank 0 has a state: the others take its weights.
        joins = self._member.recovery > 0
        self._has_state = not joins and self.rank == 0
        self._received = False
        self._packed: Optional[_Packed] = None
        self._member.form(self._level)
        self._assign()

    @property
    def committed(self) -> int:
        """Steps in the state: the number of the batch that comes next."""
        return self._committed

    def step(
        self,
        compute: Callable[[], torch.Tensor],
        *,
        samples: int = 0,
        accumulate: int = 1,
        optimize: Optional[Callable[[], Any]] = None,
    ) -> float:
        """Makes one step, also where ranks are lost in it; returns this rank's loss.

        Args:
          compute: the forward pass; returns the loss, a mean over this rank's
            samples. It runs no backward pass and no zero_grad(). It may be called
            again, and must then compute the same: it takes its batch by ``committed``,
            and where elastic by ``shard``: it is called once for each of ``shards``.
            The loss is then their mean.
          samples: of one call, for displays.
          accumulate: microbatches of a shard. ``compute`` is called for each of them,
            takes its samples by ``microbatch``, and returns their mean loss. The
            step's gradient is the mean of theirs. The same number on all ranks.
          optimize: what the step does with the gradients, which are the mean of all
            ranks by then, instead of ``optimizer.step()``: clips them first, or runs
            the optimizer by a gradient scaler. It does not communicate, because a
            rank may be lost meanwhile, and does the same on all ranks.
        """
        check_call(compute, samples, accumulate, optimize)
        before = _Transient(self._model)
        if isinstance(self._gradients, ShardGradients):
            self._gradients.forget()
        while True:
            target = self._committed + 1
            begun = False
            try:
                # Before the step begins: ranks that return interrupt nothing.
                self._member.check()
                begun = True
                loss = self._attempt(compute, accumulate, optimize or self._optimizer.step)
                break
            except Error as error:
                # One of the program's own code is no loss, and the step may be half done.
                if self._updates or not _recovery.is_lost(error):
                    raise
                self._received = False
                self._member.recover(error, self._level)
                self._assign()
                self.recoveries += 1
                if self._committed >= target:
                    # Another rank had committed the step, and gave it to this one.
                    loss = self._gradients.last_loss
                    break
                if not self._received:
                    before.restore(self._model)
                self.redone += begun
        calls = accumulate * len(self.shards)
        self._session.step(step=self._committed, samples=samples * calls, loss=loss)
        return loss

    def close(self) -> None:
        """Ends this rank's part; all ranks call it after their last step."""
        self._member.close()
        self._gradients.close()

    def _attempt(
        self,
        compute: Callable[[], torch.Tensor],
        accumulate: int,
        optimize: Callable[[], Any],
    ) -> float:
        gradients = self._gradients
        self._updates = False
        gradients.begin(self._member.group)
        self._session.phase("compute")
        gradients.last_loss = self._backward(compute, accumulate)
        self._session.phase("allreduce")
        gradients.finish()
        self._session.phase("optimizer")
        self._updates = True
        optimize()
        if self._scheduler is not None:
            self._scheduler.step()
        self._committed += 1
        self._updates = False
        self._has_state = True
        self._session.phase("other")
        return gradients.last_loss

    def _backward(self, compute: Callable[[], torch.Tensor], accumulate: int) -> float:
        """The gradients of each shard of this process; returns the mean loss."""
        gradients = self._gradients
        losses = []
        for shard in self.shards:
            self.shard = shard
            if not isinstance(gradients, ShardGradients):
                losses += self._backward_of(shard, compute, accumulate)
                continue
            gradients.next_shard()
            if shard != self.rank:
                losses += self._backward_of(shard, compute, accumulate)
            elif gradients.kept:
                losses += self._own.losses
                self._own.after.restore(self._model)
            else:
                self._own.losses = self._backward_of(shard, compute, accumulate)
                losses += self._own.losses
                if gradients.keep():
                    self._own.after = _Transient(self._model)
            gradients.check()
        self.shard, self.microbatch = self.rank, 0
        return sum(losses) / len(losses)

    def _backward_of(
        self, shard: int, compute: Callable[[], torch.Tensor], accumulate: int
    ) -> list[float]:
        """The losses of the shard's microbatches."""
        losses = []
        if self._seed is not None:
            torch.manual_seed(_mix(self._seed, self._committed, shard))
        for self.microbatch in range(accumulate):
            self._gradients.partial = self.microbatch < accumulate - 1
            self._gradients.computing = True
            try:
                loss = compute()
            finally:
                self._gradients.computing = False
            check_loss(loss)
            self._gradients.backward(loss / accumulate if accumulate > 1 else loss)
            losses.append(float(loss.detach()))
        return losses

    def _assign(self) -> None:
        """Which shards this process computes in the group that was formed."""
        if isinstance(self._gradients, ShardGradients):
            shards = assign(self.world_size, self._member.away)
            place = self._member.members.index(self.rank)
            self.shards = shards[place]
            self._gradients.assign(place, shards)

    def _drop(self) -> None:
        """This rank is away: the others train on, and its state is old."""
        self._has_state = False

    # ---- The state, on its way between ranks.

    def _prepare(self) -> None:
        """While the others come: what this rank needs of its state to compare it."""
        self._packed = None  # One copy of a state is enough, where it is on a GPU.
        if self._has_state:
            self._packed = _Packed(self._state())

    def _level(self, group: _group.Group) -> None:
        self._session.phase("other")
        # No step has come between.
        packed, self._packed = self._packed, None
        if not self._has_state:
            packed = _Packed(None)
        elif packed is None:
            packed = _Packed(self._state())
        tensors = packed.tensors
        shapes = self._agree(group, tensors)
        if not self._has_state:
            tensors = [torch.empty(shape, dtype=kind) for kind, shape in shapes]
        memory = _memory_of(tensors)
        committed = self._committed if self._has_state else None
        try:
            leveled, part = group.level(memory, packed.small, committed, packed.digest)
        except Error:
            # Half of a peer's state: this rank must not give it to others.
            self._has_state = self._has_state and not group.spoiled
            raise
        if leveled.received:
            self._load(_unpack(part, tensors))
            self._received = True
            if isinstance(self._gradients, ShardGradients):
                self._gradients.forget()
        self._committed = leveled.committed
        self._has_state = True
        if group.rank == leveled.source and self._member.recovery > 0:
            received = (
                f"; each new rank received {leveled.bytes} bytes in {leveled.seconds * 1000:.0f} ms"
                if leveled.bytes
                else ""
            )
            self._session.event(
                f"recovery {self._member.recovery}: the ranks went on with step "
                f"{leveled.committed + 1}{received}"
            )

    def _agree(self, group: _group.Group, tensors: list[torch.Tensor]) -> Any:
        """The types and shapes of the state's tensors, of the first rank that has one."""
        own = [(tensor.dtype, tuple(tensor.shape)) for tensor in tensors]
        elastic = isinstance(self._gradients, ShardGradients)
        said = traits(list(self._model.parameters()), elastic)
        if self._all_say(group, {**said, "shapes": own}):
            return own
        every = _exchange(group, {**said, "shapes": own if self._has_state else None})
        own_place = [group.rank] if self._member.recovery > 0 else range(len(every))
        check_alike(every, self._member.members, own_place)
        return next((each["shapes"] for each in every if each["shapes"] is not None), own)

    def _all_say(self, group: _group.Group, said: Any) -> bool:
        """Whether all ranks have a state, and say the same of it. It is soon known."""
        own = hashlib.blake2b(repr(said).encode(), digest_size=_DIGEST_BYTES).digest()
        every = torch.zeros((group.world_size, _DIGEST_BYTES), dtype=torch.uint8)
        if self._has_state:
            every[group.rank] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        _gather(group, every, _DIGEST_BYTES)
        return bool(every.any(dim=1).all()) and bool((every == every[0]).all())

    def _state(self) -> dict[str, Any]:
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict() if self._scheduler is not None else None,
            "states": [state.state_dict() for state in self._states],
        }

    def _load(self, state: dict[str, Any]) -> None:
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        for own, loaded in zip(self._states, state["states"]):
            own.load_state_dict(loaded)


class _Transient:
    """What the forward pass of a step changes: buffers, and random numbers."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._buffers = [buffer.detach().clone() for buffer in model.buffers()]
        self._torch = torch.get_rng_state()
        gpus = {each.device for each in model.parameters() if each.device.type == "cuda"}
        self._gpus = {gpu: torch.cuda.get_rng_state(gpu) for gpu in gpus}
        self._python = random.getstate()

    def restore(self, model: torch.nn.Module) -> None:
        with torch.no_grad():
            for buffer, kept in zip(model.buffers(), self._buffers):
                buffer.copy_(kept)
        torch.set_rng_state(self._torch)
        for gpu, state in self._gpus.items():
            torch.cuda.set_rng_state(state, gpu)
        random.setstate(self._python)


class _Packed:
    """A state as it goes to other ranks."""

    def __init__(self, state: Optional[dict[str, Any]]) -> None:
        self.tensors, self.small = _pack(state)
        memory = _memory_of(self.tensors)
        self.digest = _group.digest_of(memory) if state is not None else None


class _OwnShard:
    """What the own shard of an elastic replica has left behind besides its gradients."""

    losses: list[float]
    after: _Transient


# Those that have a Replica: it forms the session's groups.
_claimed: weakref.WeakSet[sessions.Session] = weakref.WeakSet()


def _mix(*numbers: int) -> int:
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _exchange(group: _group.Group, value: Any) -> list[Any]:
    """Every rank's value, in rank order."""
    data = io.BytesIO()
    torch.save(value, data)
    own = data.getvalue()
    sizes = torch.zeros(group.world_size, dtype=torch.int64)
    sizes[group.rank] = len(own)
    _gather(group, sizes.view(torch.uint8), 8)
    longest = int(sizes.max())
    every = torch.zeros(group.world_size * longest, dtype=torch.uint8)
    at = group.rank * longest
    every[at : at + len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    _gather(group, every, longest)
    return [
        torch.load(
            io.BytesIO(bytes(every[i * longest : i * longest + int(sizes[i])].tolist())),
            weights_only=True,
        )
        for i in range(group.world_size)
    ]


def _gather(group: _group.Group, every: torch.Tensor, part: int) -> None:
    own = (every.data_ptr() + group.rank * part, part)
    group.run(_library.ALL_GATHER, _library.UINT8, [own], [(every.data_ptr(), every.numel())])


def _pack(state: Optional[dict[str, Any]]) -> tuple[list[torch.Tensor], bytes]:
    """The state's tensors, and the rest of it as bytes.

    Tensors of the host are in place, the others are copies.
    """
    if state is None:
        return [], b""
    tensors: list[torch.Tensor] = []

    def take(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(_host_memory(value.detach()))
            return {"__tensor__": len(tensors) - 1, "device": value.device.type}
        if isinstance(value, dict):
            return {key: take(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            parts = [take(part) for part in value]
            return tuple(parts) if isinstance(value, tuple) else parts
        return value

    data = io.BytesIO()
    torch.save(take(state), data)
    return tensors, data.getvalue()


def _unpack(part: bytes, tensors: list[torch.Tensor]) -> Any:
    # From a rank of this job: the members of a group prove that they belong to it.
    structure = torch.load(io.BytesIO(part), weights_only=False)

    def give(value: Any, home: bool = True) -> Any:
        """With ``home``, on a device of the kind that it came from."""
        if isinstance(value, dict):
            if "__tensor__" in value:
                tensor = tensors[value["__tensor__"]]
                return tensor.to(value["device"]) if home else tensor
            return {key: give(inner, home) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            parts = [give(inner, home) for inner in value]
            return tuple(parts) if isinstance(value, tuple) else parts
        return value

    # These two copy to where their own tensors are.
    state = {
        key: give(part, home=key not in ("model", "optimizer")) for key, part in structure.items()
    }
    groups = structure["optimizer"].get("param_groups")
    if groups is not None:
        state["optimizer"]["param_groups"] = give(groups)
    return state


def _host_memory(tensor: torch.Tensor) -> torch.Tensor:
    if not on_host(tensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    check_layout(tensor)
    return tensor


def _memory_of(tensors: list[torch.Tensor]) -> list[_group.Span]:
    parts = [(each.data_ptr(), each.numel() * each.element_size()) for each in tensors]
    return _recovery.spans(parts)
