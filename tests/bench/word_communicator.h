// A communicator that exchanges nothing in a step but 4 bytes.
#ifndef LOCKSTEP_TESTS_BENCH_WORD_COMMUNICATOR_H_
#define LOCKSTEP_TESTS_BENCH_WORD_COMMUNICATOR_H_

#include <map>
#include <memory>
#include <string_view>

#include "worker/collective/communicator.h"

namespace lockstep {

// One rank alone, as far as the reducer can see, that meets the others in 4
// bytes a step: in the bucket that ends its memory, which is the last one.
class WordCommunicator final : public Communicator {
 public:
  static StatusOr<std::unique_ptr<Communicator>> Make(
      std::unique_ptr<Communicator> inner) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* word, inner->Allocate(4));
    return std::unique_ptr<Communicator>(
        new WordCommunicator(std::move(inner), word));
  }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view backend() const override { return inner_->backend(); }
  ProgressMode progress() const override { return inner_->progress(); }
  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer, inner_->Allocate(bytes));
    bytes_[buffer] = bytes;
    return buffer;
  }
  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override;
  void Abort(std::string_view reason) override { inner_->Abort(reason); }

 private:
  WordCommunicator(std::unique_ptr<Communicator> inner, const Buffer* word)
      : inner_(std::move(inner)), word_(word) {}
  const std::unique_ptr<Communicator> inner_;
  const Buffer* const word_;
  std::map<const Buffer*, size_t> bytes_;  // That were asked for.
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_WORD_COMMUNICATOR_H_
