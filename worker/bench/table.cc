#include "worker/bench/table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep::worker::bench {
namespace {

using collective::CollectiveKind;
using collective::DataType;
using collective::ReduceOp;

// Four digits that count.
std::string Microseconds(double seconds) {
  const double us = seconds * 1e6;
  const int digits = us < 10 ? 3 : us < 100 ? 2 : us < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", us, digits);
}

std::string Half(const BenchRow& row,
                 const std::optional<BenchTiming>& measured) {
  if (!measured) {
    return fmt::format("{:>9} {:>8} {:>8} {:>7}", "N/A", "N/A", "N/A", "N/A");
  }
  const BenchTiming& timing = *measured;
  return fmt::format("{:>9} {:>8.2f} {:>8.2f} {:>7}",
                     Microseconds(timing.seconds),
                     AlgorithmBandwidth(row, timing), BusBandwidth(row, timing),
                     timing.wrong < 0 ? "N/A" : std::to_string(timing.wrong));
}

nlohmann::json HalfJson(const BenchRow& row, const BenchTiming& timing) {
  nlohmann::json half = {{"seconds", timing.seconds},
                         {"algbw", AlgorithmBandwidth(row, timing)},
                         {"busbw", BusBandwidth(row, timing)}};
  if (timing.wrong >= 0) half["wrong"] = timing.wrong;
  return half;
}

}  // namespace

const NameTable<CollectiveKind>& CollectiveNames() {
  static const NameTable<CollectiveKind> table = {
      5,
      {{"allreduce", CollectiveKind::kAllReduce},
       {"reduce_scatter", CollectiveKind::kReduceScatter},
       {"all_gather", CollectiveKind::kAllGather},
       {"broadcast", CollectiveKind::kBroadcast},
       {"all_to_all", CollectiveKind::kAllToAll},
       {"all_reduce", CollectiveKind::kAllReduce},
       {"allgather", CollectiveKind::kAllGather},
       {"alltoall", CollectiveKind::kAllToAll},
       {"reducescatter", CollectiveKind::kReduceScatter}}};
  return table;
}

const NameTable<DataType>& TypeNames() {
  static const NameTable<DataType> table = {9,
                                            {{"float", DataType::kFloat32},
                                             {"double", DataType::kFloat64},
                                             {"half", DataType::kFloat16},
                                             {"bfloat16", DataType::kBfloat16},
                                             {"int32", DataType::kInt32},
                                             {"int64", DataType::kInt64},
                                             {"uint8", DataType::kUint8},
                                             {"int8", DataType::kInt8},
                                             {"int16", DataType::kInt16},
                                             {"float32", DataType::kFloat32},
                                             {"float64", DataType::kFloat64},
                                             {"float16", DataType::kFloat16},
                                             {"fp32", DataType::kFloat32},
                                             {"fp64", DataType::kFloat64},
                                             {"fp16", DataType::kFloat16},
                                             {"bf16", DataType::kBfloat16}}};
  return table;
}

const NameTable<ReduceOp>& OpNames() {
  static const NameTable<ReduceOp> table = {5,
                                            {{"sum", ReduceOp::kSum},
                                             {"min", ReduceOp::kMin},
                                             {"max", ReduceOp::kMax},
                                             {"avg", ReduceOp::kMean},
                                             {"prod", ReduceOp::kProduct},
                                             {"mean", ReduceOp::kMean},
                                             {"product", ReduceOp::kProduct}}};
  return table;
}

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kReduceScatter;
}

double AlgorithmBandwidth(const BenchRow& row, const BenchTiming& timing) {
  if (timing.seconds <= 0) return 0;
  return static_cast<double>(row.bytes) / timing.seconds * 1e-9;
}

double BusBandwidth(const BenchRow& row, const BenchTiming& timing) {
  const double n = row.ranks;
  double factor = 1;
  if (row.kind == CollectiveKind::kAllReduce) {
    factor = 2 * (n - 1) / n;
  } else if (row.kind != CollectiveKind::kBroadcast) {
    factor = (n - 1) / n;
  }
  return AlgorithmBandwidth(row, timing) * factor;
}

std::string TableHeader() {
  return fmt::format(
      "#{:>43}{:^41}{:^36}\n"
      "#{:>12} {:>12} {:>8} {:>6} {:>6}   {:>9} {:>8} {:>8} {:>7} {:>9} {:>8} "
      "{:>8} {:>7}\n"
      "#{:>12} {:>12} {:>8} {:>6} {:>6}   {:>9} {:>8} {:>8} {:>7} {:>9} {:>8} "
      "{:>8} {:>7}\n",
      "", "out-of-place", "in-place", "size", "count", "type", "redop", "root",
      "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong",
      "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
      "(GB/s)", "(GB/s)", "");
}

std::string TableRow(const BenchRow& row) {
  return fmt::format(" {:>12} {:>12} {:>8} {:>6} {:>6}   {} {}\n", row.bytes,
                     row.count, TypeNames().Of(row.type),
                     Reduces(row.kind) ? OpNames().Of(row.op) : "none",
                     row.root, Half(row, row.out_of_place),
                     Half(row, row.in_place));
}

std::string TableFooter(const std::vector<BenchRow>& rows) {
  int64_t wrong = 0;
  double bandwidth = 0;
  double timings = 0;
  const auto add = [&](const BenchRow& row, const BenchTiming& timing) {
    if (timing.wrong > 0) wrong += timing.wrong;
    bandwidth += BusBandwidth(row, timing);
    ++timings;
  };
  for (const BenchRow& row : rows) {
    add(row, row.out_of_place);
    if (row.in_place) add(row, *row.in_place);
  }
  return fmt::format(
      "# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.4f}\n",
      wrong, wrong == 0 ? "OK" : "FAILED",
      timings > 0 ? bandwidth / timings : 0);
}

nlohmann::json RowJson(const BenchRow& row) {
  nlohmann::json json = {{"collective", std::string(Name(row.kind))},
                         {"bytes", row.bytes},
                         {"count", row.count},
                         {"type", std::string(TypeNames().Of(row.type))},
                         {"ranks", row.ranks},
                         {"out_of_place", HalfJson(row, row.out_of_place)}};
  if (row.in_place) json["in_place"] = HalfJson(row, *row.in_place);
  if (Reduces(row.kind)) json["op"] = std::string(OpNames().Of(row.op));
  if (row.root >= 0) json["root"] = row.root;
  return json;
}

}  // namespace lockstep::worker::bench
