"""Who is in a rank's group, and when it leaves: without a daemon and without torch.

PYTHONPATH=build/release/python python3 tests/python/membership_test.py
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
import unittest
from typing import Any, Callable, Optional
from unittest import mock

from fake_job import LONG, Job, Ranks, Session, groups

from lockstep import _group, _library, _recovery
from lockstep.errors import Error, error_for

BARRIER = 8


class Rank:
    """One rank: its membership, and what happened to it."""

    def __init__(self, job: Job, number: int, elastic: bool = True, polite_s: float = 10 * LONG):
        self.session: Any = Session(job, number)
        self.dropped = 0
        self.formed: list[tuple[int, int, int]] = []  # recovery, place, size
        self.membership = _recovery.Membership(
            self.session,
            bind_address="",
            forming_timeout_s=LONG,
            operation_timeout_s=10 * LONG,
            hold_s=LONG,
            elastic=elastic,
            on_away=self.drop,
            polite_s=polite_s,
        )

    def drop(self) -> None:
        self.dropped += 1

    def level(self, group: _group.Group) -> None:
        group.run(BARRIER)
        self.formed.append((self.membership.recovery, group.rank, group.world_size))

    def form(self) -> None:
        self.membership.form(self.level)

    def barrier(self) -> None:
        assert self.membership.group is not None
        self.membership.group.run(BARRIER)

    def aborted(self) -> bool:
        """Whether the group has been cut."""
        try:
            assert self.membership.group is not None
            self.membership.group.start(BARRIER).wait(0.0)
        except Error:
            return True
        return False

    def pending(self) -> bool:
        try:
            self.membership.check()
        except Error:
            return True
        return False

    def end(self) -> None:
        self.membership.close()
        self.session.close()


class MembershipTest(unittest.TestCase):
    def setUp(self) -> None:
        self.made: list[Rank] = []
        self.addCleanup(lambda: [rank.end() for rank in self.made])

    def rank(self, job: Job, number: int, **more: Any) -> Rank:
        rank = Rank(job, number, **more)
        self.made.append(rank)
        return rank

    def all(self, ranks: list[Rank], function: Callable[[Rank], None]) -> None:
        threads = Ranks()
        for rank in ranks:
            threads.start(function, rank)
        threads.join()

    def formed(self, job: Job, numbers: tuple[int, ...], **more: Any) -> list[Rank]:
        ranks = [self.rank(job, number, **more) for number in numbers]
        self.all(ranks, Rank.form)
        return ranks

    def recover(self, ranks: list[Rank]) -> None:
        """Each makes steps until one fails, and forms the next group."""
        until = time.monotonic() + LONG

        def one(rank: Rank) -> None:
            while time.monotonic() < until:
                try:
                    rank.membership.check()
                    rank.barrier()
                except Error as error:
                    return rank.membership.recover(error, rank.level)
            raise AssertionError("nothing was cut")

        self.all(ranks, one)

    def test_the_members_are_numbered_in_the_order_of_their_ranks(self) -> None:
        job = Job(4)
        ranks = self.formed(job, (0, 1, 2, 3))
        self.assertEqual([rank.formed[-1] for rank in ranks], [(0, n, 4) for n in range(4)])
        job.recover((1,))
        self.recover([ranks[0], ranks[2], ranks[3]])
        self.assertEqual([ranks[n].formed[-1] for n in (0, 2, 3)], [(1, n, 3) for n in range(3)])
        self.assertEqual(ranks[2].membership.away, (1,))
        self.assertEqual(ranks[2].membership.members, (0, 2, 3))
        self.assertEqual({job.joined[n] for n in (0, 2, 3)}, {(1, 1)})
        job.recover((1, 2, 3))
        self.recover([ranks[0]])
        self.assertEqual(ranks[0].formed[-1], (2, 0, 1))

    def test_a_new_process_of_an_away_rank_waits_and_comes_back(self) -> None:
        job = Job(3)
        ranks = self.formed(job, (0, 1, 2))
        job.recover((2,))
        self.recover(ranks[:2])
        new = self.rank(job, 2)
        threads = Ranks()
        threads.start(new.form)
        job.wait_for("rank 2 waits", lambda: job.parked.get(2) == 1)
        self.assertEqual((new.dropped, new.formed), (1, []))
        self.assertNotEqual(job.joined[2], (2, 1))
        job.recover(())
        for rank in ranks[:2]:
            job.wait_for("the others see it", rank.pending)
            # No step is cut.
            self.assertIsNotNone(rank.membership.group)
        self.all(ranks[:2], Rank.barrier)
        self.recover(ranks[:2])
        threads.join()
        self.assertEqual([r.formed[-1] for r in (*ranks[:2], new)], [(2, n, 3) for n in range(3)])
        self.assertEqual(job.joined[2], (2, 1))
        self.assertFalse(ranks[0].pending())

    def test_a_member_that_is_away_now_drops_its_state(self) -> None:
        job = Job(2)
        ranks = self.formed(job, (0, 1))
        job.recover((1,))
        threads = Ranks()
        threads.start(self.recover, [ranks[1]])
        self.recover([ranks[0]])
        job.wait_for("rank 1 waits", lambda: job.parked.get(1) == 1)
        self.assertEqual([rank.dropped for rank in ranks], [0, 1])
        job.recover(())
        self.recover([ranks[0]])
        threads.join()
        self.assertEqual(ranks[1].formed, [(0, 1, 2), (2, 1, 2)])

    def small(self, **more: Any) -> tuple[Job, list[Rank]]:
        """Ranks 0 and 1 of 4 train, and 2 and 3 are away."""
        job = Job(4)
        job.recover((2, 3))
        return job, self.formed(job, (0, 1), **more)

    def test_a_step_that_does_not_end_is_cut(self) -> None:
        job, ranks = self.small(polite_s=0.3)
        # A barrier that rank 1 does not come to.
        waits = Ranks()
        failed: list[Error] = []
        began = time.monotonic()

        def stuck() -> None:
            try:
                ranks[0].barrier()
            except Error as error:
                failed.append(error)

        waits.start(stuck)
        job.recover((3,))
        waits.join()
        self.assertGreaterEqual(time.monotonic() - began, 0.3)
        self.assertIn("recovery 2 has begun", failed[0].message)

    def test_a_lost_rank_cuts_at_once_also_while_ranks_return(self) -> None:
        job, ranks = self.small()
        job.recover((3,))
        job.wait_for("the return", ranks[0].pending)
        job.recover((1, 3))
        job.wait_for("the cut", ranks[0].aborted)

    def test_a_return_that_follows_another_one_is_polite(self) -> None:
        job, ranks = self.small()
        for away in ((3,), ()):
            job.recover(away)
            for rank in ranks:
                one = rank.membership
                job.wait_for("the return", lambda one=one: one._pending == job.recovery)
        self.all(ranks, Rank.barrier)

    def test_the_same_ranks_away_again_is_a_cut(self) -> None:
        job, ranks = self.small()
        job.recover((2, 3))
        job.wait_for("the cut", ranks[0].aborted)

    def test_a_member_that_is_alone_learns_of_a_cut_between_steps(self) -> None:
        """It has no operation that fails."""
        job = Job(2)
        job.recover((1,))
        ranks = self.formed(job, (0,))
        ranks[0].membership.check()
        job.recover((1,))
        job.wait_for("the cut", ranks[0].aborted)
        with self.assertRaisesRegex(Error, "recovery 2 has begun"):
            ranks[0].membership.check()

    def test_another_rank_away_is_a_cut(self) -> None:
        job, ranks = self.small()
        job.recover((1,))
        job.wait_for("the cut", ranks[0].aborted)

    def test_a_recovery_that_was_not_seen_is_a_cut(self) -> None:
        """Rank 1 was lost and is back, and so are 2 and 3: a step waits for the old one."""
        job, ranks = self.small()
        job.recover((1, 2, 3), ())
        job.wait_for("the cut", ranks[0].aborted)

    def test_a_later_recovery_while_asking_who_is_away(self) -> None:
        job, ranks = self.small()
        session: Any = ranks[0].session
        ask = session.session_away

        def late(recovery: int, *rest: Any) -> None:
            # Once: another recovery begins between the wait and the question.
            session.session_away = ask
            job.recover((3,))
            ask(recovery, *rest)

        job.recover((1, 2, 3))
        job.wait_for("the cut", ranks[0].aborted)
        session.session_away = late
        threads = Ranks()
        threads.start(self.recover, ranks)
        new = self.rank(job, 2)
        threads.start(new.form)
        threads.join()
        self.assertEqual(ranks[0].formed[-1], (3, 0, 3))
        self.assertEqual(job.parked[0], 2)

    def test_the_clock_of_a_return_ends_with_it(self) -> None:
        """The second return has its own time."""
        job, ranks = self.small(polite_s=4.0)
        new = [self.rank(job, number, polite_s=4.0) for number in (2, 3)]
        threads = Ranks()
        for rank in new:
            threads.start(rank.form)
        job.wait_for("they wait", lambda: job.parked.get(2) == job.parked.get(3) == 1)
        began = time.monotonic()
        job.recover((3,))
        for rank in ranks:
            job.wait_for("the return", rank.pending)
        self.recover(ranks)
        job.wait_for("rank 2 trains", lambda: 2 in job.joined)
        three = [*ranks, new[0]]
        job.wait_for("time goes by", lambda: time.monotonic() > began + 3.0)
        job.recover(())
        for rank in three:
            job.wait_for("the return", rank.pending)
        job.wait_for("more time", lambda: time.monotonic() > began + 4.3)
        self.all(three, Rank.barrier)
        self.recover(three)
        threads.join()
        self.assertEqual(new[1].formed, [(3, 3, 4)])

    def test_a_job_that_is_not_elastic_asks_for_nothing(self) -> None:
        job = Job(3)
        ranks = self.formed(job, (0, 1, 2), elastic=False)
        job.recover(())
        job.wait_for("the cut", ranks[0].aborted)
        self.recover(ranks)
        self.assertEqual([rank.formed[-1] for rank in ranks], [(1, n, 3) for n in range(3)])
        self.assertEqual(job.asked, 0)
        self.assertEqual(set(job.joined.values()), {(1, 0)})


class FailedProcessTest(unittest.TestCase):
    """A thread that is no daemon keeps a process alive, and the others wait."""

    program = (
        "import sys, threading, time\n"
        "from lockstep import _failed_process\n"
        "_failed_process.watch(0.2)\n"
        "_failed_process.watch(600)\n"
        "threading.Thread(target=time.sleep, args=(float(sys.argv[1]),), name='loader').start()\n"
        "raise {error}\n"
    )

    def run_program(self, error: str, lives: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", self.program.format(error=error), str(lives)],
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )

    def test_it_ends(self) -> None:
        ended = self.run_program("ValueError('loss is nan')", 10 * LONG)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("ValueError: loss is nan", ended.stderr)
        self.assertRegex(ended.stderr, "lockstep: ValueError ended .* .threads: loader.: it ends")

    def test_where_no_error_can_be_written_it_ends_too(self) -> None:
        ended = self.run_program("setattr(sys, 'stderr', None) or ValueError()", 10 * LONG)
        self.assertEqual(ended.returncode, 1)

    def test_an_error_of_another_thread_ends_nothing(self) -> None:
        program = (
            "import sys, threading, time\n"
            "from lockstep import _failed_process\n"
            "_failed_process.watch(0.05)\n"
            "threading.excepthook = lambda error: sys.excepthook(*error[:3])\n"
            "thread = threading.Thread(target=lambda: 1 / 0)\n"
            "thread.start()\n"
            "thread.join()\n"
            "time.sleep(0.5)\n"
            "sys.exit(42)\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, timeout=LONG, check=False
        )
        self.assertEqual(ended.returncode, 42)

    def test_one_that_ends_by_itself_does(self) -> None:
        ended = self.run_program("ValueError('loss is nan')", 0.0)
        self.assertEqual(ended.returncode, 1)
        self.assertNotIn("lockstep:", ended.stderr)
        # Not an error: it asks for this code, and its threads may take their time.
        ended = self.run_program("SystemExit(42)", 1.0)
        self.assertEqual(ended.returncode, 42)


class State:
    """A state of two parts, all bytes of which are ``byte``."""

    def __init__(self, byte: int) -> None:
        self.parts = [(ctypes.c_ubyte * size)() for size in (5_000_001, 33)]
        for part in self.parts:
            ctypes.memset(part, byte, len(part))
        self.memory = [(ctypes.addressof(part), len(part)) for part in self.parts]

    def bytes(self) -> bytes:
        return b"".join(bytes(part) for part in self.parts)


class DigestTest(unittest.TestCase):
    """What ranks compare of their states can be made before there is a group."""

    def test_it_is_that_of_the_memory(self) -> None:
        found: list[tuple[bool, bytes]] = [(False, b"")] * 3

        def use(group: Optional[_group.Group], rank: int) -> None:
            assert group is not None
            state = State(7 if rank < 2 else 0)
            digest = _group.digest_of(state.memory) if rank == 0 else None
            committed = 4 if rank < 2 else None
            leveled, _ = group.level(state.memory, b"", committed, digest)
            found[rank] = (leveled.received, state.bytes())

        groups(3, use)
        wanted = State(7).bytes()
        self.assertEqual(found, [(False, wanted), (False, wanted), (True, wanted)])

    def test_memory_that_has_changed_since_differs(self) -> None:
        codes = [""] * 2

        def use(group: Optional[_group.Group], rank: int) -> None:
            assert group is not None
            state = State(7)
            digest = _group.digest_of(state.memory)
            if rank == 1:
                state.parts[1][0] = 8
                digest = _group.digest_of(state.memory)
                state.parts[1][0] = 7
            try:
                group.level(state.memory, b"", 4, digest)
            except Error as error:
                codes[rank] = error.reason

        groups(2, use)
        self.assertEqual(codes, ["DIVERGED"] * 2)

    def test_other_memory_is_refused(self) -> None:
        state = State(7)
        digest = _group.digest_of(state.memory[:1])

        def use(group: Optional[_group.Group], _: int) -> None:
            assert group is not None
            with self.assertRaisesRegex(Error, "digest is of memory with other sizes"):
                group.level(state.memory, b"", 4, digest)

        groups(1, use)

    def test_a_library_from_before(self) -> None:
        refuse = mock.Mock(side_effect=error_for("UNIMPLEMENTED", "it has no digest_of"))
        with mock.patch.object(_library.library(), "digest_of", refuse):
            self.assertIsNone(_group.digest_of(State(7).memory))


if __name__ == "__main__":
    unittest.main()
