"""Submits jobs to a cluster and runs functions on it.

    from lockstep.client import Client

    client = Client()
    job = client.train(func, ranks=2)
    print(job.result())

Importing this imports grpc and protobuf; ``import lockstep`` does not.
"""

from lockstep.client._client import Client
from lockstep.client._job import Job, JobFailedError
from lockstep.client._train import RemoteError, RemoteTraceback, TrainJob
from lockstep.client._views import (
    JobStatus,
    LogLine,
    NodeStatus,
    Progress,
    RankStatus,
)

__all__ = [
    "Client",
    "Job",
    "JobFailedError",
    "JobStatus",
    "LogLine",
    "NodeStatus",
    "Progress",
    "RankStatus",
    "RemoteError",
    "RemoteTraceback",
    "TrainJob",
]
