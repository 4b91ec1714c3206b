// What the other ranks of a forming group say in the handshake.
#include "worker/collective/handshake.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker::collective {
namespace {

class Done final : public Work {
 public:
  Status Wait(MonoTime) override { return OkStatus(); }
  bool Poll() override { return true; }
};

// Rank 0 of 2; what rank 1 puts into each all-gather is taken from the input.
class Peer final : public Communicator {
 public:
  explicit Peer(std::string_view input) : input_(input) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string_view backend() const override { return "fuzz"; }
  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    memory_.push_back(std::make_unique<char[]>(bytes));
    buffers_.push_back(
        std::make_unique<Buffer>(Buffer{memory_.back().get(), bytes}));
    return buffers_.back().get();
  }
  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream) override {
    if (operation.kind == CollectiveKind::kAllGather) {
      const size_t part = operation.slice.count / 2;
      char* const all = static_cast<char*>(operation.slice.buffer->data);
      // As ours, where the input ends: so that a mutation need not guess.
      std::memcpy(all + part, all, part);
      const size_t taken = std::min(part, input_.size());
      for (size_t i = 0; i < taken; ++i) all[part + i] ^= input_[i];
      input_.remove_prefix(taken);
    }
    return std::unique_ptr<Work>(new Done());
  }
  void Abort(std::string_view) override {}

 private:
  std::string_view input_;
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace
}  // namespace lockstep::worker::collective

LOCKSTEP_FUZZ_TARGET(handshake)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::collective;
  Peer peer(fuzz::View(data, size));
  HandshakeOptions options;
  options.label = "job fuzz g3";
  options.generation = 3;
  options.spec_hash = "abcdef";
  options.key = "a key";
  options.config = {{"batch_size", "64"}, {"seed", "1"}};
  // Rank 1 says that it is rank 1 only where the input makes it so, and then
  // its signature is wrong.
  fuzz::Require(!Handshake(&peer, options, MonoTime::max()).ok(),
                "a peer without the key is refused");
  return 0;
}
