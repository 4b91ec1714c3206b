#include "worker/collective/shm/started.h"

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::shm {

Started Started::Of(const Operation& operation) {
  return {WordsOf(operation), operation.part_of};
}

std::string Started::Describe() const {
  return collective::Describe(Common(), part_of);
}

}  // namespace lockstep::worker::collective::shm
