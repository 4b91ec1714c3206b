// A checkpoint's MANIFEST: as it is, and with its checksum put right.
#include "worker/checkpoint/manifest.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker {
namespace {

void CheckManifest(std::string_view text) {
  const auto manifest = checkpoint::DecodeManifest(text);
  if (!manifest.ok()) return;
  const auto encoded = checkpoint::EncodeManifest(*manifest);
  fuzz::Require(encoded.ok(), "a manifest that was read can be written");
  const auto again = checkpoint::DecodeManifest(*encoded);
  fuzz::Require(again.ok() && *again == *manifest, "and is the same");
  fuzz::Require(manifest->shards.size() == manifest->world_size,
                "there is one shard a rank");
}

}  // namespace
}  // namespace lockstep::worker

LOCKSTEP_FUZZ_TARGET(manifest)(const uint8_t* data, size_t size) {
  const std::string_view bytes = lockstep::fuzz::View(data, size);
  lockstep::worker::CheckManifest(bytes);
  lockstep::worker::CheckManifest(lockstep::fuzz::SealText(bytes));
  return 0;
}
