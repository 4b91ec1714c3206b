// A rank's shard of a checkpoint whose checksums are right: what is in it was
// written by somebody who may have been wrong.
#include "worker/checkpoint/shard.h"

#include "tests/fuzz/fuzz.h"
#include "worker/checkpoint/checksum.h"

LOCKSTEP_FUZZ_TARGET(shard)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker;
  const std::string_view bytes = fuzz::View(data, size);
  checkpoint::Checksummer sums;
  sums.Add(bytes);
  const fuzz::MemoryFile file(bytes);
  // As make_seeds writes it.
  const checkpoint::ShardId id{"mnist", {3, 120, 7}, 0, 2};
  const auto shard =
      checkpoint::Shard::Read(RealFileSystem(), file.path(), sums.Finish(), id);
  if (!shard.ok()) return 0;
  uint64_t sum = 0;
  for (const auto& tensor : shard->tensors()) {
    for (const char c : tensor.contents()) sum += static_cast<uint8_t>(c);
  }
  fuzz::Require(sum <= uint64_t{255} * size, "tensors lie in the file");
  (void)shard->Blob("rng");
  return 0;
}
