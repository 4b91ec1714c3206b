"""One rank of R7: a small model whose rank 1 is killed now and then.

Every side of R7 runs this program: the same model, optimizer, batches and steps. A
--peer is what brings a lost rank back:

  lockstep     lockstep.torch.Replica
  torchft      Manager, DistributedDataParallel and Optimizer of torchft
  reconfigure  _reconfigure() of torch.distributed's Gloo
  torchrun     a checkpoint after each step, and torchrun's restart of all ranks

After each committed step a rank appends a line to DIR/rank-RANK: the step, the
time (CLOCK_MONOTONIC, nanoseconds), its pid, and the CRC of its parameters.
DIR/begun-PID has the times of its first line, and of when all was imported and the
model was made.
"""

import time

BEGUN = time.monotonic_ns()

import argparse  # noqa: E402
import os  # noqa: E402
import zlib  # noqa: E402
from datetime import timedelta  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

RANKS = 2
BATCH = 64
# A step that is quicker waits for the rest of this time before it computes.
STEP_SECONDS = 0.02
# Nothing here waits for it: a broken connection ends a collective sooner.
PATIENCE = timedelta(seconds=240)


class Training:
    """What all peers share: the model, a step's loss, and the log of steps."""

    def __init__(self, directory):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.directory = directory
        self.last = 0
        self.file = None
        with open(os.path.join(directory, f"begun-{os.getpid()}"), "w") as file:
            file.write(f"{BEGUN} {time.monotonic_ns()}\n")

    def loss(self, module, step, rank):
        """Of the batch of `rank` in the step after `step`."""
        time.sleep(max(0, self.last + STEP_SECONDS - time.monotonic()))
        self.last = time.monotonic()
        draw = torch.Generator().manual_seed(RANKS * step + rank)
        points = torch.randn(BATCH, 64, generator=draw)
        return nn.functional.cross_entropy(module(points), points[:, :10].argmax(1))

    def committed(self, step, rank):
        if self.file is None:
            self.file = os.open(os.path.join(self.directory, f"rank-{rank}"),
                                os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        crc = 0
        for parameter in self.model.parameters():
            crc = zlib.crc32(parameter.detach().numpy(), crc)
        line = f"{step} {time.monotonic_ns()} {os.getpid()} {crc:08x}\n"
        os.write(self.file, line.encode())

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def step_over(self, step, rank, reduce):
        """A step whose gradients `reduce` averages in place, as one tensor."""
        self.optimizer.zero_grad()
        self.loss(self.model, step, rank).backward()
        gradients = [parameter.grad for parameter in self.model.parameters()]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        reduce(flat)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
            gradient.copy_(part.view_as(gradient))


def average(tensor):
    dist.all_reduce(tensor)
    tensor /= RANKS


def run_lockstep(args):
    import lockstep
    import lockstep.torch

    training = Training(args.directory)
    lockstep.join(recoverable=True)
    replica = lockstep.torch.Replica(training.model, training.optimizer)
    while True:
        replica.step(
            lambda: training.loss(training.model, replica.committed, replica.rank))
        training.committed(replica.committed, replica.rank)


def run_torchft(args):
    """Each rank is a replica group of one. With a synchronous quorum of two each step
    is that of an undisturbed run, as on the other sides. An asynchronous one was no
    quicker, and the new rank adds nothing to its first step.

    Without its DistributedDataParallel: in 0.2.0 that fails an assertion where Gloo
    says at once that a peer is lost, and the rank that was not killed ends."""
    import torchft

    training = Training(args.directory)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=PATIENCE), min_replica_size=RANKS,
        load_state_dict=training.load, state_dict=training.state,
        use_async_quorum=False, init_sync=False,
        timeout=PATIENCE, quorum_timeout=PATIENCE, connect_timeout=PATIENCE,
        heartbeat_interval=timedelta(milliseconds=args.heartbeat_ms),
        rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        lighthouse_addr=args.server, replica_id=f"rank_{args.rank}", hostname="127.0.0.1")
    while True:
        manager.start_quorum()  # heals, where this rank is new
        step = manager.current_step()
        training.step_over(step, args.rank, lambda flat: manager.allreduce(flat).wait())
        if manager.should_commit():
            training.optimizer.step()
            training.committed(manager.current_step(), args.rank)


def run_reconfigure(args):
    """The store is not a rank's, so it outlives all of them."""
    training = Training(args.directory)
    host, _, port = args.server.rpartition(":")
    store = dist.TCPStore(host, int(port), is_master=False, timeout=PATIENCE)
    dist.init_process_group("gloo", store=store, rank=args.rank, world_size=RANKS,
                            timeout=PATIENCE, enable_reconfigure=True)
    step, number, received = 0, args.losses, args.losses == 0
    while True:
        number += 1
        store.set(f"handle/{number}/{args.rank}", dist._get_reconfigure_handle())
        handles = [store.get(f"handle/{number}/{rank}").decode() for rank in range(RANKS)]
        dist._reconfigure(uuid=number, handles=handles, timeout=PATIENCE).wait()
        # From the rank with the most steps, as it may have committed one more.
        steps = [torch.zeros(1, dtype=torch.int64) for _ in range(RANKS)]
        dist.all_gather(steps, torch.tensor([step if received else -1]))
        steps = [int(count) for count in steps]
        if min(steps) < max(steps):
            source = steps.index(max(steps))
            state = [training.state() if args.rank == source else None]
            dist.broadcast_object_list(state, src=source)
            if args.rank != source:
                training.load(state[0])
            step = max(steps)
        received = True
        try:
            while True:
                training.step_over(step, args.rank, average)
                training.optimizer.step()
                step += 1
                training.committed(step, args.rank)
        except RuntimeError as error:
            print(f"rank {args.rank}: {error}", flush=True)


def run_torchrun(args):
    training = Training(args.directory)
    # All starts share the agent's store. Without a prefix ranks may read where those
    # before them listened, and fail or hang (pytorch issue 135712).
    rank = int(os.environ["RANK"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                          is_master=False, timeout=PATIENCE)
    dist.init_process_group(
        "gloo", store=dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store),
        rank=rank, world_size=RANKS, timeout=PATIENCE)
    checkpoint = os.path.join(training.directory, "checkpoint")
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        training.load(state)
        step = state["step"]
    while True:
        training.step_over(step, rank, average)
        training.optimizer.step()
        step += 1
        if rank == 0:
            torch.save({**training.state(), "step": step}, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
        training.committed(step, rank)


PEERS = {"lockstep": run_lockstep, "torchft": run_torchft,
         "reconfigure": run_reconfigure, "torchrun": run_torchrun}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--rank", type=int, default=0, help="torchft, reconfigure")
    parser.add_argument("--losses", type=int, default=0, help="of ranks, so far")
    parser.add_argument("--server", default="", help="address of recovery_server.py")
    parser.add_argument("--heartbeat-ms", type=int, default=100, help="torchft")
    args = parser.parse_args()
    torch.set_num_threads(1)
    PEERS[args.peer](args)


main()
