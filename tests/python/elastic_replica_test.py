"""lockstep.torch.Replica of an elastic job: real groups and steps, in threads of one
process, without a daemon.

PYTHONPATH=build/release/python DIR/torch/bin/python tests/python/elastic_replica_test.py
"""

from __future__ import annotations

import io
import threading
import unittest
from typing import Any, Callable, Optional, cast
from unittest import mock

import torch
from fake_job import Job, Ranks, Session

import lockstep.torch
from lockstep import _library
from lockstep.errors import Error
from lockstep.torch import _gradients, _replica, _replica_checks

RANKS = 4
STEPS = 14
ONE = torch.tensor(1.0)
MOST_NORM = 0.1
_here = threading.local()


class Killed(Exception):
    """The process dies here."""


class Process:
    """One process of a rank: a thread with a model of its own."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.number = number
        self.killed = False
        self.computed: list[tuple[int, int]] = []  # (step, shard)
        self.replica: Optional[lockstep.torch.Replica] = None
        self.session = Session(run.job, number)
        self.weights = b""
        self.losses: dict[int, float] = {}
        self.norms: list[float] = []  # of each step's gradients, before they are clipped
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=4)
        self.scales: list[float] = []  # after each step

    def main(self) -> None:
        _here.session = self.session
        model = torch.nn.Sequential(
            torch.nn.Linear(9, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5).double()
        )
        draw = torch.Generator().manual_seed(self.number)  # Rank 0's weights count.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draw) / 3)
        model[1].register_forward_hook(lambda _module, _inputs, out: out.double())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        states = [self.scaler] if self.run.scales else []
        self.replica = replica = lockstep.torch.Replica(
            model, optimizer, states=states, seed=7, elastic=self.run.elastic, hold=60.0
        )
        try:
            while replica.committed < STEPS:
                step = replica.committed
                self.losses[step] = replica.step(
                    lambda: self.loss(replica, model),
                    samples=8 // self.run.accumulate,
                    accumulate=self.run.accumulate,
                    optimize=self.optimize(model, optimizer),
                )
            parameters = list(model.parameters())
            self.weights = b"".join(p.detach().numpy().tobytes() for p in parameters)
            replica.close()
        except Killed:
            # What a process leaves behind: connections that end.
            replica._member._abort("killed")
            replica.close()
        finally:
            self.session.close()

    def optimize(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> Optional[Callable[[], None]]:
        def clip() -> None:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MOST_NORM)
            self.norms.append(float(norm))
            optimizer.step()

        def scale() -> None:
            self.scaler.step(optimizer)
            self.scaler.update()
            self.scales.append(self.scaler.get_scale())

        return clip if self.run.clips else scale if self.run.scales else None

    def loss(self, replica: lockstep.torch.Replica, model: torch.nn.Module) -> torch.Tensor:
        self.computed.append((replica.committed, replica.shard))
        self.run.wait(self, replica.committed)
        draw = torch.Generator().manual_seed(replica.committed * RANKS + replica.shard)
        points = torch.randn(8, 9, generator=draw).chunk(self.run.accumulate)[replica.microbatch]
        if replica.microbatch == 2:
            model.zero_grad()  # As a program may do, though nothing needs it.
        loss = (model(points) - points.sum(1, keepdim=True)).square().mean()
        if self.run.scales:
            # In one step one shard's gradients are infinite.
            loss = self.scaler.scale(loss if self.computed[-1] != (6, 2) else loss * 1e300)
        return cast(torch.Tensor, loss)

    def made(self, steps: int) -> bool:
        return self.replica is not None and self.replica.committed >= steps

    def in_step(self, step: int) -> bool:
        """It computes the step, and waits for its permission."""
        return bool(self.computed) and self.computed[-1][0] == step

    def returns(self, recovery: int) -> bool:
        """It knows that ranks return in the recovery."""
        assert self.replica is not None
        return self.replica._member._pending == recovery

    def is_cut(self) -> bool:
        """Its group was aborted, while it computes."""
        assert self.replica is not None and self.replica._member.group is not None
        try:
            self.replica._member.group.start(_library.BARRIER).wait(0.0)
        except Error:
            return True
        return False


class Run:
    """A job whose steps begin when the test allows it."""

    def __init__(
        self,
        *,
        elastic: bool = True,
        accumulate: int = 1,
        clips: bool = False,
        scales: bool = False,
    ) -> None:
        self.elastic = elastic
        self.accumulate = accumulate
        self.clips = clips
        self.scales = scales
        self.job = Job(RANKS)
        self.allowed = 0
        self.threads = Ranks()
        self.processes = [self.start(number) for number in range(RANKS)]

    def start(self, number: int) -> Process:
        process = Process(self, number)
        self.threads.start(process.main)
        return process

    def allow(self, steps: int) -> None:
        with self.job.changed:
            self.allowed = steps
            self.job.changed.notify_all()

    def wait(self, process: Process, step: int) -> None:
        """In the middle of a step: until it is allowed, or the process is killed."""
        self.job.wait_for(f"step {step} is allowed", lambda: self.allowed > step or process.killed)
        if process.killed:
            raise Killed

    def train(self, processes: list[Process], steps: int) -> None:
        self.allow(steps)
        for process in processes:
            self.job.wait_for(f"step {steps}", lambda process=process: process.made(steps))

    def kill(self, *numbers: int, away: tuple[int, ...]) -> None:
        for number in numbers:
            self.processes[number].killed = True
        self.job.recover(away)

    def replace(self, number: int) -> Process:
        """A new process of an away rank, which waits to come back."""
        old = self.job.recovery
        process = self.processes[number] = self.start(number)
        self.job.wait_for("it waits", lambda: self.job.parked.get(number) == old)
        return process


class ElasticReplicaTest(unittest.TestCase):
    undisturbed: dict[Any, Process] = {}
    tries = 1  # of the own shard, where a rank is lost in the middle

    def setUp(self) -> None:
        torch.set_num_threads(1)
        session = mock.patch.object(
            _replica.sessions, "session_for_recovery", lambda: _here.session
        )
        small = mock.patch.object(_gradients, "_BUCKET_BYTES", 1024)
        for one in (session, small):
            one.start()
            self.addCleanup(one.stop)

    def wanted(self, **options: Any) -> Process:
        """Rank 0 of a run in which nothing is lost. ``options``: of Run."""
        key = tuple(sorted(options.items()))
        if key not in self.undisturbed:
            run = Run(**options)
            run.allow(STEPS)
            run.threads.join()
            self.assertEqual(len({process.weights for process in run.processes}), 1)
            self.undisturbed[key] = run.processes[0]
        return self.undisturbed[key]

    def finish(self, run: Run, members: list[Process], **options: Any) -> None:
        run.allow(STEPS)
        run.threads.join()
        for process in members:
            wanted = self.wanted(**options).weights
            self.assertEqual(process.weights, wanted, f"rank {process.number}")

    def attribute(self, process: Process, name: str) -> Any:
        return getattr(process.replica, name)

    def test_smaller_and_back(self) -> None:
        run = Run()
        zero = run.processes[0]
        run.train(run.processes, 3)
        # Rank 2 is lost in the middle of step 3; the others go on.
        run.job.wait_for("all compute", lambda: all(p.in_step(3) for p in run.processes))
        run.kill(2, away=(2,))
        members = [run.processes[number] for number in (0, 1, 3)]
        run.train(members, 5)
        self.assertEqual(self.attribute(zero, "shards"), (0, 2))
        self.assertEqual(self.attribute(members[1], "shards"), (1,))
        self.assertEqual(zero.computed.count((4, 0)) + zero.computed.count((4, 2)), 2)
        # Nor did they compute again what they had.
        for process in members:
            self.assertEqual(process.computed.count((3, process.number)), self.tries)
        self.assertEqual(zero.session.steps[-1][:2], (5, 16))
        # All others are lost.
        run.job.wait_for("all compute", lambda: all(p.in_step(5) for p in members))
        run.kill(1, 3, away=(1, 2, 3))
        run.train([zero], 8)
        self.assertEqual(self.attribute(zero, "shards"), (0, 1, 2, 3))
        redone = self.attribute(zero, "redone")
        self.assertLessEqual(redone, 2)
        self.assertEqual(zero.computed.count((5, 0)), self.tries)
        # They come back, one and then two.
        run.job.wait_for("step 8", lambda: zero.in_step(8))
        two = run.replace(2)
        run.job.recover((1, 3))
        run.job.wait_for("the return", lambda: zero.returns(3))
        run.train([zero, two], 10)
        one, three = run.replace(1), run.replace(3)
        run.job.recover(())
        for process in (zero, two):
            run.job.wait_for("the return", lambda process=process: process.returns(4))
        self.finish(run, [zero, one, two, three])
        self.assertEqual(self.attribute(zero, "recoveries"), 4)
        self.assertEqual(self.attribute(zero, "redone"), redone)
        self.assertEqual(self.attribute(zero, "shards"), (0,))
        # Each shard of step 8 was computed once: its ranks only returned after it.
        self.assertEqual([c for c in zero.computed if c[0] == 8], [(8, s) for s in range(RANKS)])

    def test_rank_zero_too(self) -> None:
        """It has no state when it is back, although all began with its weights."""
        run = Run()
        run.train(run.processes, 3)
        run.job.wait_for("all compute", lambda: all(p.in_step(3) for p in run.processes))
        run.kill(0, away=(0,))
        members = run.processes[1:]
        run.train(members, 5)
        self.assertEqual(self.attribute(members[0], "shards"), (1, 0))
        zero = run.replace(0)
        run.job.recover(())
        for process in members:
            run.job.wait_for("the return", lambda process=process: process.returns(2))
        self.finish(run, [zero, *members])
        self.assertNotIn(4, {step for step, _ in zero.computed})

    def test_a_loss_is_the_mean_of_the_shards_here(self) -> None:
        run = Run()
        run.train(run.processes, 2)
        run.kill(1, 2, 3, away=(1, 2, 3))
        self.finish(run, [run.processes[0]])
        losses = run.processes[0].losses
        self.assertEqual(losses[0], self.wanted().losses[0])
        self.assertNotEqual(losses[STEPS - 1], self.wanted().losses[STEPS - 1])
        self.assertEqual(self.attribute(run.processes[0], "shard"), 0)

    def test_a_rank_that_was_cut_off_drops_its_state(self) -> None:
        """The process of rank 1 lives, and has an old state when it is back."""
        run = Run()
        run.train(run.processes, 2)
        one = run.processes[1]
        run.job.recover((1,))
        for process in run.processes:
            run.job.wait_for("the cut", process.is_cut)
        run.allow(3)
        run.job.wait_for("rank 1 waits", lambda: run.job.parked.get(1) == 1)
        run.train([run.processes[number] for number in (0, 2, 3)], 5)
        run.job.recover(())
        self.finish(run, run.processes)
        self.assertEqual({step for step, _ in one.computed} & {3, 4}, set())

    def lose_two_in_the_middle(self, run: Run) -> None:
        """One of the others computes the shards of two ranks from step 3 on."""
        run.train(run.processes, 3)
        run.job.wait_for("all compute", lambda: all(p.in_step(3) for p in run.processes))
        run.kill(0, 2, away=(0, 2))

    def test_microbatches_are_added_up(self) -> None:
        """Also those of other ranks' shards; their mean is that of the whole batch."""
        run = Run(accumulate=4)
        self.lose_two_in_the_middle(run)
        self.finish(run, [run.processes[1], run.processes[3]], accumulate=4)
        whole, parts = self.wanted(), self.wanted(accumulate=4)
        self.assertNotEqual(parts.weights, whole.weights)  # The sums have another order.
        for step in range(STEPS):
            self.assertAlmostEqual(parts.losses[step], whole.losses[step], delta=1e-5)
        # AdamW does not depend on the scale of gradients.
        norms = self.wanted(accumulate=4, clips=True).norms
        for norm, other in zip(norms, self.wanted(clips=True).norms):
            self.assertAlmostEqual(norm / other, 1.0, delta=1e-3)
        self.assertEqual(parts.session.steps[-1][:2], whole.session.steps[-1][:2])
        self.assertEqual(parts.computed.count((5, 0)), 4)
        self.assertEqual(run.processes[1].computed.count((5, 0)), 4)
        self.assertEqual(run.processes[1].computed.count((3, 1)), 4 * self.tries)
        self.assertEqual(self.attribute(parts, "microbatch"), 0)

    def test_microbatches_of_a_job_that_is_not_elastic(self) -> None:
        parts = self.wanted(elastic=False, accumulate=2)
        whole = self.wanted(elastic=False)
        for step in range(STEPS):
            self.assertAlmostEqual(parts.losses[step], whole.losses[step], delta=1e-5)

    def test_the_program_runs_the_optimizer(self) -> None:
        """It clips what is the same on all ranks, also where ranks are lost."""
        run = Run(clips=True)
        self.lose_two_in_the_middle(run)
        self.finish(run, [run.processes[1], run.processes[3]], clips=True)
        wanted = self.wanted(clips=True)
        self.assertNotEqual(wanted.weights, self.wanted().weights)
        self.assertEqual(len(wanted.norms), STEPS)
        self.assertGreater(min(wanted.norms[:3]), MOST_NORM)
        self.assertEqual(run.processes[1].norms, wanted.norms)

    def test_a_gradient_scaler_is_part_of_the_state(self) -> None:
        """All ranks leave out the step in which one shard has no finite gradient."""
        run = Run(scales=True)
        self.lose_two_in_the_middle(run)
        members = [run.processes[1], run.processes[3]]
        run.train(members, 5)
        zero = run.replace(0)
        run.job.recover((2,))
        for process in members:
            run.job.wait_for("the return", lambda process=process: process.returns(2))
        self.finish(run, [zero, *members], scales=True)
        wanted = self.wanted(scales=True).scales
        self.assertEqual(wanted[3:9], [128.0, 128.0, 128.0, 64.0, 64.0, 64.0])
        self.assertEqual(run.processes[1].scales, wanted)
        self.assertEqual(zero.scales, wanted[-len(zero.scales) :])

    def test_a_job_that_is_not_elastic(self) -> None:
        run = Run(elastic=False)
        run.train(run.processes, 3)
        run.kill(2, away=())
        run.processes[2] = run.start(2)
        run.allow(STEPS)
        run.threads.join()
        for process in run.processes:
            self.assertEqual(process.weights, self.wanted(elastic=False).weights)
            self.assertEqual(self.attribute(process, "shards"), (process.number,))
            self.assertEqual({shard for _, shard in process.computed}, {process.number})
        self.assertEqual(run.job.asked, 0)


class DeviceReplicaTest(ElasticReplicaTest):
    """The same for models on a device: here the CPU stands for it."""

    tries = 2

    def setUp(self) -> None:
        super().setUp()
        for module in (_gradients, _replica, _replica_checks):
            device = mock.patch.object(module, "on_host", lambda tensor: False)
            device.start()
            self.addCleanup(device.stop)


class PackTest(unittest.TestCase):
    def test_what_programs_keep_returns_to_its_kind_of_device(self) -> None:
        state = {
            "model": {"w": torch.ones(2)},
            "optimizer": {"state": {0: {"m": torch.ones(2)}}, "param_groups": [{"lr": ONE}]},
            "scheduler": None,
            "states": [{"mean": ONE, "seen": 3}],
        }
        tensors, part = _replica._pack(state)
        self.assertEqual(len(tensors), 4)
        # As if all of them had been on another device.
        elsewhere = torch.load(io.BytesIO(part), weights_only=False)
        for place in (
            elsewhere["model"]["w"],
            elsewhere["optimizer"]["state"][0]["m"],
            elsewhere["optimizer"]["param_groups"][0]["lr"],
            elsewhere["states"][0]["mean"],
        ):
            place["device"] = "meta"
        data = io.BytesIO()
        torch.save(elsewhere, data)
        found = _replica._unpack(data.getvalue(), tensors)
        # load_state_dict copies these to where they belong.
        self.assertEqual(found["model"]["w"].device.type, "cpu")
        self.assertEqual(found["optimizer"]["state"][0]["m"].device.type, "cpu")
        self.assertEqual(found["optimizer"]["param_groups"][0]["lr"].device.type, "meta")
        self.assertEqual(found["states"][0]["mean"].device.type, "meta")
        self.assertEqual(found["states"][0]["seen"], 3)


if __name__ == "__main__":
    unittest.main()
