#include "worker/bench/names.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep {
namespace {

const std::vector<std::pair<std::string, DataType>>& Types() {
  static const std::vector<std::pair<std::string, DataType>> types = {
      {"float", DataType::kFloat32},   {"double", DataType::kFloat64},
      {"half", DataType::kFloat16},    {"bfloat16", DataType::kBfloat16},
      {"int32", DataType::kInt32},     {"int64", DataType::kInt64},
      {"uint8", DataType::kUint8},     {"float32", DataType::kFloat32},
      {"float64", DataType::kFloat64}, {"float16", DataType::kFloat16},
      {"fp32", DataType::kFloat32},    {"fp64", DataType::kFloat64},
      {"fp16", DataType::kFloat16},    {"bf16", DataType::kBfloat16},
  };
  return types;
}

const std::vector<std::pair<std::string, ReduceOp>>& Ops() {
  static const std::vector<std::pair<std::string, ReduceOp>> ops = {
      {"sum", ReduceOp::kSum},
      {"min", ReduceOp::kMin},
      {"max", ReduceOp::kMax},
      {"avg", ReduceOp::kMean},
      {"mean", ReduceOp::kMean}};
  return ops;
}

const std::vector<std::pair<std::string, CollectiveKind>>& Collectives() {
  static const std::vector<std::pair<std::string, CollectiveKind>> all = {
      {"allreduce", CollectiveKind::kAllReduce},
      {"reduce_scatter", CollectiveKind::kReduceScatter},
      {"all_gather", CollectiveKind::kAllGather},
      {"broadcast", CollectiveKind::kBroadcast},
      {"all_reduce", CollectiveKind::kAllReduce},
      {"allgather", CollectiveKind::kAllGather},
      {"reducescatter", CollectiveKind::kReduceScatter}};
  return all;
}

// How many of the first names are the proper ones.
constexpr size_t kTypeNames = 7;
constexpr size_t kOpNames = 4;
constexpr size_t kCollectiveNames = 4;

template <typename Value>
bool Find(const std::vector<std::pair<std::string, Value>>& table,
          const std::string& name, Value* value) {
  for (const auto& [known, its] : table) {
    if (known != name) continue;
    *value = its;
    return true;
  }
  return false;
}

template <typename Value>
std::string Names(const std::vector<std::pair<std::string, Value>>& table,
                  size_t count) {
  std::string names;
  for (size_t i = 0; i < count; ++i) names += table[i].first + ", ";
  return names + "all";
}

// One of the table, or "all": the first `count` of it. Else what is wrong.
template <typename Value>
std::string Take(const std::vector<std::pair<std::string, Value>>& table,
                 size_t count, const std::string& name,
                 std::vector<Value>* values) {
  values->clear();
  Value value;
  if (name == "all") {
    for (size_t i = 0; i < count; ++i) values->push_back(table[i].second);
  } else if (Find(table, name, &value)) {
    values->push_back(value);
  } else {
    return fmt::format("{} is not one of: {}", name, Names(table, count));
  }
  return "";
}

}  // namespace

std::string_view NcclName(DataType type) {
  for (const auto& [name, its] : Types()) {
    if (its == type) return name;
  }
  return "?";
}

std::string_view NcclName(ReduceOp op) {
  for (const auto& [name, its] : Ops()) {
    if (its == op) return name;
  }
  return "?";
}

std::string TypeNames() { return Names(Types(), kTypeNames); }

std::string OpNames() { return Names(Ops(), kOpNames); }

std::string TakeCollectives(const std::string& name,
                            std::vector<CollectiveKind>* values) {
  return Take(Collectives(), kCollectiveNames, name, values);
}

std::string TakeTypes(const std::string& name, std::vector<DataType>* values) {
  return Take(Types(), kTypeNames, name, values);
}

std::string TakeOps(const std::string& name, std::vector<ReduceOp>* values) {
  return Take(Ops(), kOpNames, name, values);
}

}  // namespace lockstep
