"""What is drawn from a seed."""

from __future__ import annotations

import unittest

import faults
from faults import NEED_HOSTS
from processes import Rank


class DrawTest(unittest.TestCase):
    def test_a_seed_draws_the_same_again(self) -> None:
        self.assertEqual(faults.draw(7, 60, True), faults.draw(7, 60, True))
        self.assertNotEqual(faults.draw(7, 60, True), faults.draw(8, 60, True))

    def test_each_kind_comes_and_ends_in_time(self) -> None:
        for seed in range(100):
            drawn = faults.draw(seed, 60, True)
            self.assertEqual({fault.kind for fault in drawn}, set(faults.KINDS))
            for fault in drawn:
                self.assertLessEqual(fault.at + fault.lasts, 60)

    def test_one_of_a_kind_at_a_time(self) -> None:
        for seed in range(100):
            ends = dict.fromkeys(faults.KINDS, 0.0)
            for fault in faults.draw(seed, 60, True):
                self.assertLessEqual(ends[fault.kind], fault.at)
                ends[fault.kind] = fault.at + fault.lasts

    def test_without_hosts(self) -> None:
        kinds = {fault.kind for fault in faults.draw(7, 60, False)}
        self.assertEqual(kinds, set(faults.KINDS) - set(NEED_HOSTS))


class PickTest(unittest.TestCase):
    def test_every_rank_can_be_picked(self) -> None:
        ranks = [Rank("a", 0, 1, 10, "1"), Rank("b", 0, 1, 11, "1"), Rank("b", 1, 1, 12, "1")]
        picked = [faults.Injector._pick(ranks, pick) for pick in (0.0, 0.49, 0.5, 0.74, 0.76, 0.99)]
        self.assertEqual([rank.pid if rank else 0 for rank in picked], [10, 10, 11, 11, 12, 12])
        self.assertIsNone(faults.Injector._pick([], 0.5))


if __name__ == "__main__":
    unittest.main()
