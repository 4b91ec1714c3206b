"""The client of a cluster: submits jobs, runs functions, lists what is there."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import (
    Any,
    Callable,
    TypeVar,
)

from lockstep.client import _context, _package, _pickling, _spec, _train, _views
from lockstep.client._job import Job, detached, request_id
from lockstep.client._package import Packed, PathLike
from lockstep.client._rpc import Rpc
from lockstep.client._spec import Seconds, Size, bad
from lockstep.client._train import TrainJob
from lockstep.client._views import JobStatus, NodeStatus
from lockstep.errors import Error

T = TypeVar("T")

_PAGE = 500
# Smaller packages are uploaded before the job is checked, to save a call.
_SMALL = 1 << 20


class Client:
    """A connection to a cluster's coordinator.

    Without arguments it is the one that the ``lockstep`` command talks to: the
    variables LOCKSTEP_ADDRESS, _CA, _CERT, _KEY, _INSECURE_LOOPBACK and _CONTEXT
    come first, then the current context. It connects at the first call. Safe
    from any thread; not usable in a child of fork().
    """

    def __init__(
        self,
        context: str | None = None,
        *,
        address: str | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        insecure_loopback: bool = False,
    ) -> None:
        """Reads the certificates.

        Args:
          context: a name of ``lockstep context list``.
          address: HOST:PORT of the coordinator.
          ca, cert, key: paths of PEM files.
          insecure_loopback: no TLS; for a coordinator of this machine only.

        Raises:
          NotFoundError: there is no such context, or a file is missing.
          Error: FAILED_PRECONDITION: no cluster is known, or no certificate.
        """
        self._rpc = Rpc(_context.resolve(context, address, ca, cert, key, insecure_loopback))

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def __enter__(self) -> Client:  # noqa: PYI034 - Self is of Python 3.11.
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. Jobs run on."""
        self._rpc.close()

    @property
    def address(self) -> str:
        """HOST:PORT of the coordinator."""
        return self._rpc.address

    def submit(
        self,
        command: Sequence[PathLike],
        *,
        name: str | None = None,
        kind: str | None = None,
        tasks: int | None = None,
        workers: int | None = None,
        ranks_per_task: int | None = None,
        cpus: float | None = None,
        memory: Size | None = None,
        gpus: int | None = None,
        gpu_type: str | None = None,
        pool: str | None = None,
        image: str | None = None,
        packages: PathLike | Iterable[PathLike] | None = None,
        python: str | None = None,
        runtime: str | None = None,
        env: Mapping[str, Any] | None = None,
        slurm_env: bool = False,
        workdir: str | None = None,
        output: str | None = None,
        checkpoint_interval_steps: int | None = None,
        checkpoint_keep: int | None = None,
        max_restarts: int | None = None,
        priority: int | None = None,
        time_limit: Seconds | None = None,
        wait_limit: Seconds | None = None,
        end_with: str | None = None,
        end_grace: Seconds | None = None,
        hang: str | None = None,
        stall_after: Seconds | None = None,
        progress_pattern: str | None = None,
        node_lost_timeout: str | Seconds | None = None,
        idle_notice: Seconds | None = None,
        idle_stop: Seconds | None = None,
        warm_starts: bool = False,
        spares: int = 0,
        hold: Seconds | None = None,
        elastic: int = 0,
        rescale: bool = False,
        labels: Mapping[str, Any] | None = None,
        comment: str | None = None,
    ) -> Job:
        """Queues a job and returns it. The defaults are those of `lockstep submit`.

        Args:
          command: the program and its arguments. One with "/" is a path; relative
            ones are resolved here, and the nodes have to see the same path.
          name: default: the program's, and six hexadecimal digits.
          kind: "native" or "program"; default: native for lockstep-train.
          tasks: a chief and workers; default 1.
          workers: instead of tasks: workers and no chief.
          ranks_per_task: processes of a task; default 1.
          cpus: cores of a task; default: one a rank.
          memory: of a task, bytes or "2GiB"; default: no reservation.
          gpus: of a task; default 0.
          gpu_type: the model, "T4"; default: any.
          pool: only nodes of this pool; default: any node.
          image: the container image of every task; default: none.
          packages: folders, sdists and wheels to bring along; a folder with
            __init__.py keeps its name, of another the content is importable.
          python: the interpreter of the packages on the nodes; default: the
            command's, if that has a path, else the site's.
          runtime: instead of python: a name of the site's table.
          env: variables of every rank.
          slurm_env: also set SLURM_PROCID and the like.
          workdir: where ranks start, a folder of the nodes or "output"; default:
            the task's own folder.
          output: the output directory, which all hosts share; default: for native
            jobs ~/lockstep/NAME.
          checkpoint_interval_steps: steps between checkpoints; default: none by step.
          checkpoint_keep: how many are kept; default 3.
          max_restarts: restarts without progress before the job fails; default 3.
          priority: 0 to 1000, larger first; default 0.
          time_limit: seconds from the first RUNNING on; default: no limit.
          wait_limit: seconds until the first RUNNING; default: no limit.
          end_with: "all" or "chief": whose end is the job's.
          end_grace: seconds for the workers after the chief's end; default 300.
          hang: "warn", "restart" or "off", when it shows no progress; default: warn
            for programs, restart for native jobs.
          stall_after: seconds that a program may show no progress; default: learned.
          progress_pattern: an expression (RE2) of log lines that show progress;
            default: the lines of common frameworks.
          node_lost_timeout: when a program moves off a silent host: "auto", "never" or
            seconds; default: auto.
          idle_notice: seconds without work of any rank until the job's history says so;
            0: never; default: the site's.
          idle_stop: seconds without work of any rank until the job is stopped; 0: never;
            default: the site's.
          warm_starts: nodes keep Python interpreters for ranks that start again.
          spares: nodes that are held for the ranks of a node that is lost or drained.
          hold: seconds that the ranks that are left hold their state when a node is
            lost, until another one is ready; 0: never; default: 480.
          elastic: when ranks are lost, the others train on without them, while so
            many tasks are complete; 0: they hold their state.
          rescale: instead, of any program: the gang starts with ``elastic`` tasks or
            more, as there is room, and restarts with more later.
          labels: keys and values of a-z, 0-9, "_" and "-".
          comment: free text.

        Raises:
          InvalidArgumentError: an argument is wrong; nothing was submitted.
          Error: ALREADY_EXISTS: the name is taken. FAILED_PRECONDITION with the
            reason NEVER_FITS: no node can ever run it.
        """
        options = dict(locals())
        for other in ("self", "command", "packages", "python", "runtime"):
            del options[other]
        argv = [os.fspath(part) for part in _as_list(command)]
        spec = self._build(argv, options)
        return self._submit(spec, _package.open_all(packages), argv, python, runtime)

    def train(
        self,
        func: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        ranks: int = 2,
        ranks_per_task: int = 1,
        gpus: int = 0,
        cpus: float = 1.0,
        memory: Size | None = None,
        gpu_type: str | None = None,
        pool: str | None = None,
        image: str | None = None,
        packages: PathLike | Iterable[PathLike] | None = None,
        python: str | None = None,
        env: Mapping[str, Any] | None = None,
        workdir: str | None = None,
        output: str | None = None,
        name: str | None = None,
        max_restarts: int = 0,
        priority: int | None = None,
        time_limit: Seconds | None = None,
        wait_limit: Seconds | None = None,
        labels: Mapping[str, Any] | None = None,
        comment: str | None = None,
    ) -> TrainJob[T]:
        """Runs ``func(*args, **kwargs)`` on every rank of a job, and returns the job.

        ``result()`` gives the value of rank 0, ``results()`` those of all ranks. A
        rank finds RANK, WORLD_SIZE, MASTER_ADDR and the rest in its environment, so
        that torch.distributed.init_process_group() needs no arguments. Closures
        and functions of notebooks work. The module of ``func`` travels with it,
        unless it is installed; other modules of yours go into ``packages``.

        Args:
          ranks: the number of processes.
          ranks_per_task: how many of them share a task, and so a node.
          gpus: of each rank.
          cpus: cores of each rank.
          memory: of each rank, bytes or "2GiB"; default: no reservation.
          image: a container image with Python of this version.
          python: the interpreter on the nodes; default: the path of this one, or
            python3 in an image. It needs this one's minor version.
          workdir: a folder of the nodes to change to; default: the task's own.
          max_restarts: restarts of the whole gang after a failure; default 0.
          name: default: the function's, and six hexadecimal digits.
          others: as in submit.

        Raises:
          InvalidArgumentError: an argument is wrong, or cannot be pickled.
          Error: as submit.
        """
        tasks = _train.spread(ranks, ranks_per_task)
        brought = _paths(packages)
        payload = _pickling.pickle_call(func, args, kwargs, brought)
        call = _pickling.pack_call(func, payload, os.path.abspath(workdir) if workdir else None)
        interpreter = python or (None if image else sys.executable) or "python3"
        argv = _train.command_of(interpreter, bool(image))
        options = {
            "name": name or _spec.job_name(_name_of(func), secrets.token_hex(3)),
            "tasks": tasks,
            "ranks_per_task": ranks_per_task,
            "cpus": cpus * ranks_per_task,
            "gpus": gpus * ranks_per_task,
            "memory": memory and _spec.size_bytes("memory", memory) * ranks_per_task,
            "gpu_type": gpu_type,
            "pool": pool,
            "image": image,
            "env": env,
            "output": output,
            "max_restarts": max_restarts,
            "priority": priority,
            "time_limit": time_limit,
            "wait_limit": wait_limit,
            "labels": labels,
            "comment": comment,
        }
        spec = self._build([] if image else argv, options)
        for role in spec.roles if image else ():
            role.container.command.extend(argv)
        packed = [call] + _package.open_all(brought)
        job = self._submit(spec, packed, argv, interpreter, None)
        return TrainJob(self._rpc, job.name)

    def job(self, name: str) -> Job:
        """Returns the job of this name; a TrainJob if it runs a function.

        Raises NotFoundError if there is none; the message suggests a near name.
        """
        request = self._rpc.message("GetJobRequest", name=name)
        found = self._rpc.call("GetJob", request)
        return (TrainJob if _train.is_call(found) else Job)(self._rpc, found.name)

    def resize(self, name: str, tasks: int) -> JobStatus:
        """Sets how many tasks a job has at most: Job.resize."""
        return Job(self._rpc, name).resize(tasks)

    def jobs(
        self, states: Iterable[str] = (), *, filter: str = "", limit: int = 0
    ) -> list[JobStatus]:
        """Lists jobs, the newest first, without their ranks.

        Args:
          states: only jobs in these states, "RUNNING"; empty for all.
          filter: as `lockstep jobs list --filter`: "labels.team=vision".
          limit: at most this number; 0 for all.
        """
        request = self._rpc.message("ListJobsRequest", filter=filter)
        for state in states:
            try:
                number = self._rpc.schema.enum_value("JobState", "JOB_STATE_" + state)
            except KeyError:
                raise bad("states", f'there is no state "{state}"') from None
            request.states.append(number)
        found: list[JobStatus] = []
        for job in self._pages("ListJobs", request, "jobs", limit):
            found.append(_views.job_of(self._rpc.schema, job))
        return found

    def nodes(self) -> list[NodeStatus]:
        """Lists the nodes by name."""
        request = self._rpc.message("ListNodesRequest")
        nodes = self._pages("ListNodes", request, "nodes", 0)
        return [_views.node_of(self._rpc.schema, node) for node in nodes]

    # ---- What the methods share ----------------------------------------------

    def _pages(self, method: str, request: Any, field: str, limit: int) -> Iterator[Any]:
        count = 0
        while True:
            request.page_size = min(_PAGE, limit - count) if limit > 0 else _PAGE
            answer = self._rpc.call(method, request)
            for each in getattr(answer, field):
                yield each
                count += 1
                if count == limit:
                    return
            request.page_token = answer.next_page_token
            if not request.page_token:
                return

    def _build(self, argv: list[str], options: Mapping[str, Any]) -> Any:
        random = secrets.token_hex(3)
        try:
            return _spec.build(self._rpc.schema, argv, random, **options)
        except (TypeError, OverflowError) as error:
            raise bad("submit", f"an argument has a wrong type: {error}") from error

    def _submit(
        self,
        spec: Any,
        packages: list[Packed],
        argv: Sequence[str],
        python: str | None,
        runtime: str | None,
    ) -> Job:
        with contextlib.ExitStack() as stack:
            for package in packages:
                stack.callback(package.close)
            spec.packages.extend(package.message(self._rpc) for package in packages)
            _spec.set_interpreter(spec, argv, python, runtime)
            self._send(spec, packages)
        return Job(self._rpc, spec.name)

    def _send(self, spec: Any, packages: list[Packed]) -> None:
        request = self._rpc.message("SubmitJobRequest", request_id=request_id(), spec=spec)
        with self._may_have_submitted(spec.name):
            if sum(package.bytes for package in packages) > _SMALL:
                self._check(request)
            for package in packages:
                _package.upload(self._rpc, package)
            try:
                self._rpc.call("SubmitJob", request)
            except Error as error:
                # It may have been removed for space meanwhile.
                if error.reason != "PACKAGE_MISSING":
                    raise
                for package in packages:
                    _package.upload(self._rpc, package)
                self._rpc.call("SubmitJob", request)

    def _check(self, request: Any) -> None:
        """Lets the coordinator refuse the job before large packages travel."""
        question = self._rpc.message("SubmitJobRequest", validate_only=True)
        question.spec.CopyFrom(request.spec)
        answer = self._rpc.call("SubmitJob", question)
        if answer.never_fits:
            raise Error(
                f"job {request.spec.name} can never run here: " + "; ".join(answer.never_fits),
                code="FAILED_PRECONDITION",
                reason="NEVER_FITS",
            )

    @contextlib.contextmanager
    def _may_have_submitted(self, name: str) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            words = detached(self._rpc, name).replace("runs on", "may have been queued")
            sys.stderr.write(words)
            raise


def _as_list(command: Any) -> list[Any]:
    if isinstance(command, (str, bytes)):
        raise bad("command", 'is one text; give a list: ["python3", "train.py"]')
    return list(command)


def _paths(packages: Any) -> list[str]:
    if packages is None:
        return []
    if isinstance(packages, (str, os.PathLike)):
        return [os.fspath(packages)]
    return [os.fspath(package) for package in packages]


def _name_of(func: Any) -> str:
    name = getattr(func, "__name__", "") or type(func).__name__
    return "function" if name == "<lambda>" else name
