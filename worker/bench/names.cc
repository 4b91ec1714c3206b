#include "worker/bench/names.h"

namespace lockstep::worker::bench {

using collective::CollectiveKind;
using collective::DataType;
using collective::ReduceOp;

const NameTable<CollectiveKind>& CollectiveNames() {
  static const NameTable<CollectiveKind> table = {
      4,
      {{"allreduce", CollectiveKind::kAllReduce},
       {"reduce_scatter", CollectiveKind::kReduceScatter},
       {"all_gather", CollectiveKind::kAllGather},
       {"broadcast", CollectiveKind::kBroadcast},
       {"all_reduce", CollectiveKind::kAllReduce},
       {"allgather", CollectiveKind::kAllGather},
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

}  // namespace lockstep::worker::bench
