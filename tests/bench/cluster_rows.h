// The rows of the control plane, and I1: what each starts, takes and compares.
#ifndef LOCKSTEP_TESTS_BENCH_CLUSTER_ROWS_H_
#define LOCKSTEP_TESTS_BENCH_CLUSTER_ROWS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/cluster_support.h"

namespace lockstep {

// The samples of each round, in seconds or bytes.
using Rounds = std::vector<std::vector<double>>;

// Takes one sample of a side; empty: the side is not there.
using Sampler = std::function<StatusOr<double>()>;
// The seconds that `act` takes.
Sampler Timed(std::function<Status()> act);

// A side that is ours and one that it is compared with.
struct Comparison {
  std::string id;
  std::string peer;
  size_t ours = 0;  // Of RowRun::sides.
  size_t theirs = 1;
  int ranks = 0;
  uint64_t bytes = 0;
  bool* verified = nullptr;  // Null: true.
  const char* unit = "seconds";
};

// One run of a row.
struct RowRun {
  int rounds = 0;    // 0: the row's own
  std::string only;  // R5: results with this in their id
  BenchDir dir;
  Board board{dir.path() + "/board"};
  std::unique_ptr<BenchCluster> ours;
  std::unique_ptr<SlurmPeer> slurm;  // null: the machine has none
  Status missing = OkStatus();       // NotFound: a peer was not there
  std::vector<Rounds> sides;

  // Starts `ours`, as BenchCluster::Start does.
  Status Start(int workers, const std::string& site = "");
  // The same, and `slurm` where the machine has it.
  Status StartBoth(int workers);
  // The peer that `slurm` is: `what` with its version before it.
  std::string Slurm(const std::string& what) const;
  // Takes `samples` of each side in each of `count` rounds, by turns, in an
  // order that turns too, into `sides`. The first round is dropped where there
  // are more than three.
  Status Take(int count, int samples, const std::vector<Sampler>& samplers);
  // Writes a comparison as a line of JSON; where the peer has no samples, the
  // median of ours.
  void Report(const Comparison& comparison) const;
  // Take, then Report of each. `noted`: another side, of what was noted of each
  // sample of the first one.
  Status Compare(int count, int samples, const std::vector<Sampler>& samplers,
                 const std::vector<Comparison>& comparisons,
                 const std::vector<double>* noted = nullptr);
};

// L1: from submission to the first instruction of both ranks of a gang, beside
// sbatch and srun -n2. The store is on disk with fsync. One job at a time.
// `L1-api` stamps before Client::SubmitJob, `L1-command` before the start of
// `lockstep submit --detach`, as for sbatch and srun. Both tasks run a static
// program whose first act is to read the clock; the sample ends with the later
// one. sbatch's script is one process on one node, so it has less to do.
Status RunL1(RowRun* run);
// L2: from submission to the first collective done on both ranks: a native job
// of two ranks through Client::SubmitJob, beside `srun -n2` of a program that
// forms a raw Gloo mesh over a FileStore.
Status RunL2(RowRun* run);
// F1: from submission in AI Platform's words to the first instruction of both
// ranks. The package is stored already and on both nodes.
//   F1          Client::SubmitTraining, beside SubmitJob of a plain command
//   F1-same     the same, beside SubmitJob of the very spec that it becomes
//   F1-check    with an interpreter that is asked for the module before, as
//               CPython is: what that question costs
//   F1-command  `lockstep jobs submit training`, beside `lockstep submit`
Status RunF1(RowRun* run);
// F3: SIGKILL one of two ranks; from there to the first instruction of both
// ranks of the next start, in place, beside torchrun's: one agent with two
// ranks on this host, its own defaults and restarts to spare. It looks at its
// ranks every 0.1 s: kills come at random moments.
Status RunF3(RowRun* run);

// Q1: 1,000 jobs of /bin/true from the first submission until the last one's
// final state is durable, beside a Slurm array of the same. Four connections
// submit; a job asks for 1/32 of a core, so that 64 run at a time, as on
// Slurm's 64 pretended CPUs.
Status RunQ1(RowRun* run);
// F2: the same of 1,000 jobs in AI Platform's words, each with a package that
// is stored already.
//   F2       Client::SubmitTraining, beside SubmitJob of a plain /bin/true
//   F2-same  the same, beside SubmitJob of the very spec that it becomes
Status RunF2(RowRun* run);
// F4: a package of 200 MB of random bytes to the first instruction of a rank on
// each of two nodes, beside `cp` and sha256sum of the same bytes: the least
// that bringing and checking one copy costs. New bytes each round.
//   F4       from the folder: packing included
//   F4-sent  from the packed file: upload, fetch, unpack, start
Status RunF4(RowRun* run);

// R4: SIGKILL the coordinator while 200 tasks sleep, start it again at once,
// beside slurmctld with as many tasks. How long until
//   R4        it shows their jobs as running, as squeue does
//   R4-ready  both worker daemons are back too and every task's pid is known
//   and
//             the same (the same peer: slurmctld does not wait for that)
// Slurm's job was saved before; one younger than 5 s is lost with slurmctld.
// R4-steps: seconds a step of a training job, without and with a coordinator.
Status RunR4(RowRun* run);

// I1: a TFRecord scan that checks both CRCs, one core, file in the page cache,
// 1 GiB of 1 KiB and of 115,000-byte records: TfRecordReader beside
//   raw    a bare loop of the same checks over 4 MiB reads (the limit)
//   stdio  fread of header, body and footer into a buffer of its own
Status RunI1(RowRun* run);

// O2: a scrape of the coordinator's /metrics with 500 live jobs, gzip asked
// for, beside prometheus-cpp's own Collect and TextSerializer of as many
// gauges.
Status RunO2(RowRun* run);
// O3: 1 GiB of 100-byte lines from one rank until a follower has every byte,
// beside srun forwarding the same to its stdout. What arrives is compared by
// its number of lines and its CRC32C. Ours also keeps them: in the node's files
// (rotated) and on the coordinator's disk; what the log store leaves out by its
// limits is announced by a line of its own.
Status RunO3(RowRun* run);
// O4: CPU time and resident memory of daemons that have nothing to do, over 30
// s after 5 s of rest: a worker daemon beside slurmd, the coordinator beside
// slurmctld, all at the same time.
Status RunO4(RowRun* run);

// Q3: 200 worker daemons, simulated by one process (a TLS connection, a stream
// and a beat every 0.5 s each), against one coordinator: its CPU time over 30
// s, beside a bare gRPC server that answers the same frames under the same TLS.
// Then 20 of the streams fall silent: each must be UNKNOWN within the lease and
// two ticks, and no other.
Status RunQ3(RowRun* run);
// The bare server: serves until it or its parent ends; its port goes to the
// board's slot.
int ServeEcho(const std::string& tls_dir, const char* board, int slot);
// Q4: 5,000 watches and 1,000 followers of a log, 500 a connection, all idle:
// what each adds to the coordinator's resident memory after a minute, beside
// the 20 KiB that it may; and the 99th percentile of submissions with them
// open, beside the same without them, which it may double at most.
Status RunQ4(RowRun* run);
// R5: 50 SIGKILLs of ranks at random moments, steps of 20 ms, 100 MiB of state,
// two and four ranks: until a step is committed that began afterwards, beside
// the same job that restarts as a whole. R6: its goodput with a kill every 15 s
// for ten minutes. --rounds is the number of kills.
Status RunR5(RowRun* run);
Status RunR6(RowRun* run);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_CLUSTER_ROWS_H_
