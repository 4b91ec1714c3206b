// Arithmetic of a rank on its own bytes between the stages.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_SLICES_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_SLICES_H_

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::hierarchical {

// Makes the sum of `by` operands their mean. For float32 and float64.
void Divide(const Slice& slice, int by);
// Multiplies 16-bit floats by `factor`, in float32.
void Scale(const Slice& slice, float factor);
// Zeroes all of the slice except rank `rank`'s of `size` equal parts.
void ZeroOthers(const Slice& slice, int rank, int size);
// Whether the slices do not overlap.
bool Apart(const Slice& a, const Slice& b);

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_SLICES_H_
