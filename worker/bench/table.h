// Results as text in nccl-tests' columns and as JSON. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_TABLE_H_
#define LOCKSTEP_WORKER_BENCH_TABLE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

struct BenchTiming {
  double seconds = 0;  // of one operation, of the slowest rank
  int64_t wrong = -1;  // elements, of all ranks; -1: not checked
};

struct BenchRow {
  collective::CollectiveKind kind = collective::CollectiveKind::kAllReduce;
  uint64_t bytes = 0;  // of all parts together
  uint64_t count = 0;  // elements of a rank's argument, as nccl-tests counts
  collective::DataType type = collective::DataType::kFloat32;
  collective::ReduceOp op = collective::ReduceOp::kSum;
  int root = -1;  // of a broadcast
  int ranks = 1;
  BenchTiming out_of_place;
  BenchTiming in_place;
};

// Whether it adds up, so that the result depends on the operation.
bool Reduces(collective::CollectiveKind kind);

// 10^9 bytes a second: size over time, and what each wire of a ring would
// carry (nccl-tests' PERFORMANCE.md: all-reduce 2 (n-1) / n, all-gather and
// reduce-scatter (n-1) / n, broadcast 1 of it).
double AlgorithmBandwidth(const BenchRow& row, const BenchTiming& timing);
double BusBandwidth(const BenchRow& row, const BenchTiming& timing);

// Lines with "#" first, and one of a row.
std::string TableHeader();
std::string TableRow(const BenchRow& row);
// Returns the number of wrong values and the mean bus bandwidth of all rows.
std::string TableFooter(const std::vector<BenchRow>& rows);

nlohmann::json RowJson(const BenchRow& row);

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_TABLE_H_
