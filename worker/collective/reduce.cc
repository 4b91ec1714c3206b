#include "worker/collective/reduce.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep::worker::collective {
namespace {

// How the tables are laid out.
static_assert(static_cast<int>(DataType::kFloat32) == 0 &&
              static_cast<int>(DataType::kFloat64) == 1 &&
              static_cast<int>(DataType::kFloat16) == 2 &&
              static_cast<int>(DataType::kBfloat16) == 3 &&
              static_cast<int>(DataType::kInt32) == 4 &&
              static_cast<int>(DataType::kInt64) == 5 &&
              static_cast<int>(DataType::kUint8) == 6 &&
              static_cast<int>(DataType::kInt8) == 7 &&
              static_cast<int>(DataType::kInt16) == 8);
static_assert(static_cast<int>(ReduceOp::kSum) == 0 &&
              static_cast<int>(ReduceOp::kMin) == 1 &&
              static_cast<int>(ReduceOp::kMax) == 2 &&
              static_cast<int>(ReduceOp::kMean) == 3 &&
              static_cast<int>(ReduceOp::kProduct) == 4);

const ReduceTable* TableOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPlain:
      return &kPlainReductions;
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return &kAvx2Reductions;
    case InstructionSet::kAvx512:
      return &kAvx512Reductions;
#endif
    default:
      return nullptr;
  }
}

template <DataType type, ReduceOp op>
void ReduceTwo(void* out, const void* a, const void* b, size_t count) {
  static const ReduceAllFunction function =
      ReduceAllFunctionFor(type, op, BestInstructionSet());
  const void* const ins[] = {a, b};
  function(&out, 1, ins, 2, count);
}

template <DataType type>
ReduceFunction ForOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return ReduceTwo<type, ReduceOp::kSum>;
    case ReduceOp::kMin:
      return ReduceTwo<type, ReduceOp::kMin>;
    case ReduceOp::kMax:
      return ReduceTwo<type, ReduceOp::kMax>;
    case ReduceOp::kProduct:
      return ReduceTwo<type, ReduceOp::kProduct>;
  }
  return nullptr;
}

template <typename T>
void Divide(void* values, size_t count, int ranks) {
  T* const v = static_cast<T*>(values);
  for (size_t i = 0; i < count; ++i) v[i] /= static_cast<T>(ranks);
}

}  // namespace

ReduceFunction ReduceFunctionFor(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kFloat32:
      return ForOp<DataType::kFloat32>(op);
    case DataType::kFloat64:
      return ForOp<DataType::kFloat64>(op);
    case DataType::kInt32:
      return ForOp<DataType::kInt32>(op);
    case DataType::kInt64:
      return ForOp<DataType::kInt64>(op);
    case DataType::kUint8:
      return ForOp<DataType::kUint8>(op);
    case DataType::kInt8:
      return ForOp<DataType::kInt8>(op);
    case DataType::kInt16:
      return ForOp<DataType::kInt16>(op);
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return nullptr;
  }
  return nullptr;
}

void DivideForMean(DataType type, void* values, size_t count, int ranks) {
  if (type == DataType::kFloat32) Divide<float>(values, count, ranks);
  if (type == DataType::kFloat64) Divide<double>(values, count, ranks);
}

std::string_view Name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPlain:
      return "plain";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "unknown";
}

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows it. Asked once: a virtual
// machine takes microseconds to answer.
static bool HasF16c() {
  static const bool has = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return has;
}
#endif

InstructionSet BestInstructionSet() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && HasF16c()) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && HasF16c()) {
    return InstructionSet::kAvx2;
  }
#endif
  return InstructionSet::kPlain;
}

ReduceAllFunction ReduceAllFunctionFor(DataType type, ReduceOp op,
                                       InstructionSet set) {
  if (set > BestInstructionSet()) return nullptr;
  const ReduceTable* table = TableOf(set);
  const auto row = static_cast<size_t>(type);
  const auto column = static_cast<size_t>(op);
  if (table == nullptr || row >= ReduceTable::kTypes ||
      column >= ReduceTable::kOps) {
    return nullptr;
  }
  return table->of[row][column];
}

}  // namespace lockstep::worker::collective
