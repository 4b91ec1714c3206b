// What nccl-tests calls collectives, types and operations. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_NAMES_H_
#define LOCKSTEP_WORKER_BENCH_NAMES_H_

#include <fmt/format.h>

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

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_NAMES_H_
