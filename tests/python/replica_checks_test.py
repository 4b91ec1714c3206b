"""What lockstep.torch.Replica refuses, and what stays the program's own.

PYTHONPATH=build/release/python DIR/torch/bin/python tests/python/replica_checks_test.py
"""

from __future__ import annotations

import threading
import unittest
from typing import Any, cast
from unittest import mock

import torch
from fake_job import Job, Ranks, Session

import lockstep.torch
from lockstep.errors import Error, InvalidArgumentError
from lockstep.torch import _replica

_here = threading.local()


class ReplicaChecksTest(unittest.TestCase):
    """What is wrong is said in a sentence, and nothing has been done."""

    def setUp(self) -> None:
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        session = mock.patch.object(
            _replica.sessions, "session_for_recovery", lambda: _here.session
        )
        session.start()
        self.addCleanup(session.stop)
        _here.session = Session(Job(1), 0)

    def replica(self, **other: Any) -> lockstep.torch.Replica:
        arguments = {"model": self.model, "optimizer": self.optimizer, **other}
        return lockstep.torch.Replica(**arguments)

    def loss(self) -> torch.Tensor:
        return cast(torch.Tensor, self.model(torch.ones(3)).sum())

    def test_parts(self) -> None:
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer)
        lbfgs = torch.optim.LBFGS(self.model.parameters())
        parallel = torch.nn.Sequential(torch.nn.DataParallel(self.model))
        for arguments, why in (
            ({"model": parallel}, "^0 is wrapped in DataParallel, .* give it the module"),
            ({"model": parallel[0]}, "^the model is wrapped in DataParallel"),
            ({"model": "resnet"}, "is a torch.nn.Module, not a str"),
            ({"model": torch.nn.Linear(2, 2, dtype=torch.complex64)}, "not torch.complex64"),
            ({"optimizer": lbfgs}, "takes no closure, as LBFGS does"),
            ({"optimizer": torch.optim.SGD}, "not the class SGD"),
            ({"scheduler": plateau}, "put the ReduceLROnPlateau into states"),
            ({"scheduler": 3}, "scheduler has a int, which has no state_dict"),
            ({"states": [3]}, "states has a int, which has no state_dict"),
        ):
            with self.subTest(why), self.assertRaisesRegex(InvalidArgumentError, why):
                self.replica(**arguments)
        self.replica()
        with self.assertRaisesRegex(Error, "this process has its Replica: it makes one"):
            self.replica()

    def test_layouts_of_several_ranks(self) -> None:
        _here.session = Session(Job(2), 0)
        transposed = torch.nn.Linear(3, 4)
        transposed.weight.data = torch.ones(3, 4).t()
        sparse = torch.nn.Linear(3, 4)
        sparse.register_buffer("mask", torch.ones(3, 4).to_sparse())
        for model, why in ((transposed, "strides .1, 4."), (sparse, "dense tensors, not of torch")):
            with self.subTest(why), self.assertRaisesRegex(InvalidArgumentError, why):
                self.replica(model=model)

    def test_calls(self) -> None:
        replica = self.replica()
        before = self.model.weight.detach().clone()

        def backward() -> torch.Tensor:
            loss = self.loss()
            loss.backward(retain_graph=True)
            return loss

        good: dict[str, Any] = {"compute": self.loss}
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"compute": self.loss()}, "a function that returns the loss, not a Tensor"),
            ({"compute": lambda: None}, "returns the loss as a tensor, not None"),
            ({"compute": lambda: 0.5}, "returns the loss as a tensor, not a float"),
            ({"compute": lambda: self.model(torch.ones(2, 3))}, "of one element, not of shape"),
            ({"compute": lambda: torch.ones(())}, "has no gradient"),
            ({"compute": backward}, "it only returns the loss, and torch.autograd.grad"),
            ({"optimize": 5}, "optimize is a function that runs the optimizer, not a int"),
            ({"samples": 2.5}, "from 0, not 2.5"),
            ({"samples": -5}, "from 0, not -5"),
            ({"accumulate": 0}, "from 1, not 0"),
            ({"accumulate": True}, "from 1, not True"),
        ]
        for arguments, why in wrong:
            with self.subTest(why), self.assertRaisesRegex(Error, why):
                replica.step(**{**good, **arguments})
        self.assertEqual(replica.committed, 0)
        self.assertTrue(torch.equal(self.model.weight, before))
        replica.step(self.loss)
        torch.testing.assert_close(self.model.weight.detach(), before - 0.1)

    def test_backward_passes_between_steps_are_the_programs(self) -> None:
        replica = self.replica()
        before = self.model.weight.detach().clone()
        for forget in (False, True):
            self.model.zero_grad(set_to_none=forget)
            self.loss().backward()
            replica.step(self.loss)
        torch.testing.assert_close(self.model.weight.detach(), before - 0.2)
        replica.close()
        self.model.zero_grad()
        self.loss().backward()
        assert self.model.weight.grad is not None
        torch.testing.assert_close(self.model.weight.grad, torch.ones(1, 3))

    def test_an_error_of_the_optimizer_is_no_lost_peer(self) -> None:
        replica = self.replica()

        def optimize() -> None:
            raise Error("the tracker does not answer", code="UNAVAILABLE")

        with self.assertRaisesRegex(Error, "the tracker does not answer"):
            replica.step(self.loss, optimize=optimize)
        self.assertEqual((replica.committed, replica.recoveries), (0, 0))
        replica.step(self.loss)
        self.assertEqual(replica.committed, 1)

    def test_ranks_that_differ(self) -> None:
        small, frozen = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
        frozen.bias.requires_grad_(False)
        for others, why in (
            ([{"elastic": True}, {}], "rank 0 has .* elastic=True, and rank 1 .* elastic=False"),
            ([{}, {"model": torch.nn.Linear(3, 2)}], "rank 0 .* 2 .* 4 el.* rank 1 .* 2 .* 8 el"),
            ([{}, {"model": frozen}], "which of them are trained must be the same"),
        ):
            job, said = Job(2), []

            def start(number: int, other: dict[str, Any]) -> None:
                _here.session = Session(job, number)  # noqa: B023
                try:
                    self.replica(**{"model": small, **other})
                except InvalidArgumentError as error:
                    said.append(str(error))  # noqa: B023

            ranks = Ranks()
            for number, other in enumerate(others):
                ranks.start(lambda number=number, other=other: start(number, other))
            ranks.join()
            self.assertEqual(len(said), 2)
            for one in said:
                self.assertRegex(one, why)


if __name__ == "__main__":
    unittest.main()
