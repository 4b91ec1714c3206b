// Places of gradients, checks that they are finite, and their conversion for
// the wire. PURE.
#ifndef LOCKSTEP_WORKER_RUNTIME_GRADIENTS_H_
#define LOCKSTEP_WORKER_RUNTIME_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/bucket_plan.h"
#include "worker/runtime/reducer.h"

namespace lockstep::worker::runtime {

// The plan of a reducer of `world_size` ranks, with room for the tail; takes
// order and wire of `options`. Its hash is compared between ranks. The entries'
// numbers are those of `parameters`. InvalidArgument: options.order does not
// name each once.
StatusOr<collective::BucketPlan> PlanGradients(
    const std::vector<Parameter>& parameters, const ReducerOptions& options,
    int world_size, const collective::BucketSizes& sizes);

// "3,2,0,1", and back; DataLoss for text that Format did not make.
std::string FormatOrder(std::span<const uint32_t> order);
StatusOr<std::vector<uint32_t>> ParseOrder(std::string_view text);

// True where no element is NaN or infinite.
bool AllFinite(std::span<const float> values);

// `to` becomes, or grows by, `from`; true where all of `from` is finite (after
// adding: all of the sum). In one pass over memory.
// REQUIRES: equal sizes; `to` and `from` are apart.
bool CopyFinite(std::span<const float> from, std::span<float> to);
bool AddFinite(std::span<const float> from, std::span<float> to);

// `sum` becomes, element by element, the sum of `parts` from the first to the
// last. `sum` may be the memory of one of them.
// REQUIRES: at least one part, of sum.size() elements each.
void SumInOrder(std::span<const float* const> parts, std::span<float> sum);

// bfloat16: the upper half of a float, to the nearest, ties to even. A finite
// value above 3.39e38 becomes infinite. The relative error is at most 2^-8.
// RoundFinite returns whether what it made is finite everywhere.
// REQUIRES: equal sizes.
bool RoundFinite(std::span<const float> from, std::span<uint16_t> to);
// The largest error of a sum of gradients that was reduced in bfloat16 over
// `backend`, as a part of the sum of the ranks' absolute values: one rounding
// of each value and one of each sum that travels on.
double Bfloat16WireError(std::string_view backend);
void Widen(std::span<const uint16_t> from, std::span<float> to);

// In double, in an order that depends on the size alone.
double SumOfSquares(std::span<const float> values);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_GRADIENTS_H_
