// What nccl-tests calls collectives, types and operations, and results as text
// in its columns and as JSON. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_TABLE_H_
#define LOCKSTEP_WORKER_BENCH_TABLE_H_

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

// The first `proper` names are shown; others are in use and taken too.
template <typename Value>
struct NameTable {
  size_t proper;
  std::vector<std::pair<std::string_view, Value>> names;

  std::string_view Of(Value value) const {
    for (const auto& [name, its] : names) {
      if (its == value) return name;
    }
    return "?";
  }

  // "float, double, ..., all".
  std::string List() const {
    std::string list;
    for (size_t i = 0; i < proper; ++i)
      list += fmt::format("{}, ", names[i].first);
    return list + "all";
  }

  // What one of the names stands for; "all": all of them. Returns what is
  // wrong, empty when nothing is.
  std::string Take(std::string_view wanted, std::vector<Value>* values) const {
    values->clear();
    for (size_t i = 0; i < names.size(); ++i) {
      const bool taken =
          wanted == "all" ? i < proper : names[i].first == wanted;
      if (taken) values->push_back(names[i].second);
    }
    return values->empty() ? fmt::format("{} is none of: {}", wanted, List())
                           : "";
  }
};

const NameTable<collective::CollectiveKind>& CollectiveNames();
const NameTable<collective::DataType>& TypeNames();
const NameTable<collective::ReduceOp>& OpNames();

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
  std::optional<BenchTiming> in_place;  // none of an all-to-all
};

// Whether it adds up, so that the result depends on the operation.
bool Reduces(collective::CollectiveKind kind);

// 10^9 bytes a second: size over time, and what each wire of a ring would
// carry (nccl-tests' PERFORMANCE.md: all-reduce 2 (n-1) / n, all-gather,
// reduce-scatter and all-to-all (n-1) / n, broadcast 1 of it).
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
