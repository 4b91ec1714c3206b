"""Gradients of shards have the same bits at every number of members.

PYTHONPATH=build/release/python DIR/torch/bin/python tests/python/shards_test.py
"""

from __future__ import annotations

import unittest
from typing import Optional
from unittest import mock

import torch
from fake_job import groups

from lockstep import _group, errors
from lockstep.torch import _gradients, _shards
from lockstep.torch._gradients import Gradients
from lockstep.torch._shards import ShardGradients, assign

SHARDS = 4
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Odd ones, empty ones, and some that are larger than a bucket of the test.
SIZES = ((7,), (33, 5), (1,), (0,), (901, 3), (64,), (129, 17), (2,))
BUCKET_BYTES = 4096

Bits = list[bytes]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(5)
        self.all = torch.nn.ParameterList(
            torch.nn.Parameter(torch.randn(size, generator=draw).to(kind))
            for kind in TYPES
            for size in SIZES
        )
        # One that has no gradient, and one that has it in two shards only.
        self.never = torch.nn.Parameter(torch.ones(9))
        self.sometimes = torch.nn.Parameter(torch.ones(35))

    def loss(self, shard: int, step: int = 0) -> torch.Tensor:
        draw = torch.Generator().manual_seed(100 * step + shard)
        used = [*self.all, *([self.sometimes] if shard in (1, 2) else [])]
        parts = [
            (one * torch.randn(one.shape, generator=draw).to(one.dtype)).tanh().double().sum()
            for one in used
        ]
        return torch.stack(parts).sum() * (1 + shard / 3)


def bits(tensors: list[torch.Tensor]) -> Bits:
    return [tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors]


def plain(step: int = 0) -> Bits:
    """The plan, word by word."""
    model = Model()
    means = []
    every = [
        torch.autograd.grad(model.loss(shard, step), list(model.parameters()), allow_unused=True)
        for shard in range(SHARDS)
    ]
    for index, parameter in enumerate(model.parameters()):
        wide = torch.float64 if parameter.dtype is torch.float64 else torch.float32
        total = torch.zeros(parameter.shape, dtype=wide)
        for number, shard in enumerate(every):
            one = shard[index]
            one = torch.zeros_like(parameter) if one is None else one
            total = one.to(wide) if number == 0 else total + one.to(wide)
        means.append((total / SHARDS).to(parameter.dtype))
    return bits(means)


def make_step(
    model: Model,
    gradients: ShardGradients,
    group: Optional[_group.Group],
    shards: tuple[int, ...],
    step: int = 0,
) -> Bits:
    gradients.begin(group)
    for shard in shards:
        gradients.next_shard()
        if shard % 2 == 1:
            model.zero_grad()  # As a program may do, though nothing needs it.
        gradients.backward(model.loss(shard, step))
    gradients.finish()
    found = []
    for parameter in model.parameters():
        assert parameter.grad is not None
        found.append(parameter.grad)
    return bits(found)


class ShardsTest(unittest.TestCase):
    keeps = True  # gradients of the own shard

    def setUp(self) -> None:
        small = mock.patch.object(_gradients, "_BUCKET_BYTES", BUCKET_BYTES)
        small.start()
        self.addCleanup(small.stop)
        torch.set_num_threads(1)

    def reduced(self, away: tuple[int, ...]) -> list[Bits]:
        """The gradients of each member."""
        plan = assign(SHARDS, away)
        found: list[Bits] = [[] for _ in plan]

        def use(group: Optional[_group.Group], place: int) -> None:
            model = Model()
            gradients = ShardGradients(model, SHARDS)
            self.assertGreater(len(gradients._buckets), 2 * len(TYPES))
            gradients.assign(place, plan)
            found[place] = make_step(model, gradients, group, plan[place])

        groups(len(plan), use)
        return found

    def test_every_shard_has_one_member(self) -> None:
        self.assertEqual(assign(4, ()), [(0,), (1,), (2,), (3,)])
        self.assertEqual(assign(4, (2,)), [(0, 2), (1,), (3,)])
        self.assertEqual(assign(5, (1, 2, 4)), [(0, 1, 4), (3, 2)])
        self.assertEqual(assign(3, (2, 1)), [(0, 1, 2)])
        for away in ((), (1,), (3,), (1, 3), (2, 3, 5), (1, 2, 3, 4, 5)):
            every = sorted(shard for shards in assign(6, away) for shard in shards)
            self.assertEqual(every, list(range(6)))

    def test_the_bits_are_those_of_the_plain_sum_at_every_size(self) -> None:
        wanted = plain()
        for away in ((), (2,), (3,), (1, 3), (1, 2), (1, 2, 3)):
            found = self.reduced(away)
            self.assertEqual(len(found), SHARDS - len(away))
            for member in found:
                self.assertEqual(member, wanted, f"away: {away}")

    def test_without_a_group_the_sum_is_the_same(self) -> None:
        model = Model()
        gradients = ShardGradients(model, SHARDS)
        plan = assign(SHARDS, (1, 2, 3))
        gradients.assign(0, plan)
        self.assertEqual(make_step(model, gradients, None, plan[0]), plain())

    def test_one_object_follows_the_members(self) -> None:
        """Sizes change between steps; each step's gradients are its own."""
        sizes = ((), (2,), (1, 2, 3), (1, 2), ())
        made = [(Model(),) for _ in range(SHARDS)]
        gradients = [ShardGradients(model, SHARDS) for (model,) in made]
        for step, away in enumerate(sizes):
            plan = assign(SHARDS, away)
            found: list[Bits] = [[] for _ in plan]

            def use(group: Optional[_group.Group], place: int) -> None:
                rank = plan[place][0]
                gradients[rank].assign(place, plan)
                found[place] = make_step(made[rank][0], gradients[rank], group, plan[place], step)

            groups(len(plan), use)
            for member in found:
                self.assertEqual(member, plain(step), f"step {step}, away: {away}")

    def test_a_step_that_was_given_up_leaves_nothing(self) -> None:
        model = Model()
        gradients = ShardGradients(model, SHARDS)
        gradients.assign(0, assign(SHARDS, (1, 2, 3)))
        gradients.begin(None)
        for shard in (0, 1):
            gradients.next_shard()
            gradients.backward(model.loss(shard, 9))
        # The others are back: this rank computes its own shard.
        found: list[Bits] = [[] for _ in range(SHARDS)]

        def use(group: Optional[_group.Group], place: int) -> None:
            own, shards = (model, gradients) if place == 0 else (Model(), None)
            shards = shards or ShardGradients(own, SHARDS)
            shards.assign(place, assign(SHARDS, ()))
            found[place] = make_step(own, shards, group, (place,))

        groups(SHARDS, use)
        for member in found:
            self.assertEqual(member, plain())

    def test_the_own_shard_is_not_computed_again(self) -> None:
        """Rank 3 is lost when the others have computed their shards."""
        plan = assign(SHARDS, (3,))
        found: list[Bits] = [[] for _ in plan]

        def use(group: Optional[_group.Group], place: int) -> None:
            model = Model()
            gradients = ShardGradients(model, SHARDS, place)
            gradients.assign(place, assign(SHARDS, ()))
            gradients.begin(None)
            gradients.next_shard()
            gradients.backward(model.loss(place))
            self.assertFalse(gradients.kept)
            gradients.keep()
            gradients.assign(place, plan)
            self.assertEqual(gradients.kept, self.keeps)
            gradients.begin(group)
            for shard in plan[place]:
                gradients.next_shard()
                if shard != place or not gradients.kept:
                    gradients.backward(model.loss(shard))
            gradients.finish()
            self.assertFalse(gradients.kept)
            found[place] = bits([p.grad for p in model.parameters() if p.grad is not None])

        groups(len(plan), use)
        for member in found:
            self.assertEqual(member, plain())

    def test_a_backward_pass_ends_although_a_peer_was_lost(self) -> None:
        """So its gradients are there for the next group; a long one is given up."""
        lost = errors.error_for("ABORTED", "rank 1 is gone")
        broken = mock.Mock(start=mock.Mock(side_effect=lost))
        for longest, kept in ((60.0, self.keeps), (-1.0, False)):
            with mock.patch.object(_shards, "_FINISH_S", longest):
                model = Model()
                gradients = ShardGradients(model, SHARDS)
                gradients.assign(0, assign(SHARDS, ()))
                gradients.begin(broken)
                gradients.next_shard()
                with self.assertRaisesRegex(errors.AbortedError, "rank 1 is gone"):
                    gradients.backward(model.loss(0))
                    gradients.keep()
                    gradients.check()
                self.assertEqual(gradients.kept, kept)
                gradients.forget()
                gradients.begin(None)
                grads = [p.grad for p in model.parameters() if p.grad is not None]
                self.assertFalse(any(bool(grad.any()) for grad in grads))

    @mock.patch.object(_shards, "_FINISH_S", -1.0)
    @mock.patch.object(_gradients, "_BUCKET_BYTES", 1)
    def test_a_backward_pass_that_has_ended_is_not_given_up(self) -> None:
        lost = errors.error_for("ABORTED", "rank 1 is gone")
        model = torch.nn.Linear(3, 1)
        gradients = ShardGradients(model, SHARDS)
        gradients.assign(0, assign(SHARDS, ()))
        gradients.begin(mock.Mock(start=mock.Mock(side_effect=lost)))
        gradients.next_shard()
        if self.keeps:  # Nothing is left to compute when the second bucket is complete.
            gradients.backward(model(torch.ones(3)).sum())
            self.assertTrue(gradients.keep())
        else:
            with self.assertRaisesRegex(errors.AbortedError, "rank 1 is gone"):
                gradients.backward(model(torch.ones(3)).sum())

    def test_the_loss_of_a_rank_needs_no_new_memory(self) -> None:
        for rank, ready in ((0, True), (1, True), (2, False)):
            gradients = ShardGradients(Model(), SHARDS, rank)

            def used(gradients: ShardGradients = gradients) -> set[int]:
                kept = [*gradients._own, *gradients._spare, gradients._memory]
                return {each.data_ptr() for buckets in kept for each in buckets}

            gradients.assign(rank, assign(SHARDS, ()))
            before = used()
            gradients.assign(rank, assign(SHARDS, (3,)))
            self.assertEqual(used(), before)
            # This rank is the first member, and computes two shards.
            gradients.assign(0, [(rank, 3), (1,), (2,)])
            self.assertEqual(used() == before, ready)
            gradients.assign(rank, assign(SHARDS, ()))
            self.assertEqual(used(), before)

    def test_the_plan_of_a_job_that_is_not_elastic(self) -> None:
        """The mean of all ranks, close to the plain sum, and equal on all of them."""
        found: list[list[torch.Tensor]] = [[] for _ in range(SHARDS)]

        def use(group: Optional[_group.Group], place: int) -> None:
            model = Model()
            gradients = Gradients(model)
            gradients.begin(group)
            if place == 1:
                model.zero_grad()
            gradients.backward(model.loss(place))
            gradients.finish()
            found[place] = [p.grad for p in model.parameters() if p.grad is not None]

        groups(SHARDS, use)
        wanted = plain()
        for index, one in enumerate(found[0]):
            if one.numel():
                exact = torch.frombuffer(bytearray(wanted[index]), dtype=one.dtype)
                torch.testing.assert_close(one.flatten(), exact, rtol=2e-2, atol=2e-2)
        for other in found[1:]:
            self.assertEqual(bits(other), bits(found[0]))


class DeviceShardsTest(ShardsTest):
    """The same for parameters on a device: here the CPU stands for it."""

    keeps = False

    def setUp(self) -> None:
        super().setUp()
        device = mock.patch.object(_gradients, "on_host", lambda tensor: False)
        device.start()
        self.addCleanup(device.stop)

    def test_gradients_are_apart_from_the_buckets(self) -> None:
        model = Model()
        gradients = ShardGradients(model, SHARDS)
        buckets = [(each.data_ptr(), each.data_ptr() + each.nbytes) for each in gradients._buckets]
        for parameter in model.parameters():
            assert parameter.grad is not None
            at = parameter.grad.data_ptr()
            self.assertFalse(any(first <= at < last for first, last in buckets))


class ParametersTest(unittest.TestCase):
    def test_what_cannot_be_reduced_is_refused(self) -> None:
        linear = torch.nn.Linear(2, 2)
        two = torch.nn.Sequential(linear, torch.nn.Linear(2, 2, device="meta"))
        for model, why in (
            (two, "not on cpu, meta"),
            (torch.nn.Linear(2, 2, device="meta"), "not on meta"),
            (torch.nn.Linear(2, 2, dtype=torch.complex64), "not torch.complex64"),
        ):
            with self.assertRaisesRegex(Exception, why):
                Gradients(model)

    def test_gradients_are_laid_out_as_their_parameters(self) -> None:
        model = torch.nn.Conv2d(3, 8, 5).to(memory_format=torch.channels_last)
        gradients = Gradients(model)
        gradients.begin(None)
        gradients.backward(model(torch.ones(1, 3, 8, 8)).sum())
        gradients.finish()
        assert model.weight.grad is not None
        self.assertEqual(model.weight.grad.stride(), model.weight.stride())
        alone = torch.nn.Conv2d(3, 8, 5)
        alone.load_state_dict(model.state_dict())
        alone(torch.ones(1, 3, 8, 8)).sum().backward()
        torch.testing.assert_close(model.weight.grad, alone.weight.grad)


if __name__ == "__main__":
    unittest.main()
