// A package's archive: as it is, and decompressed where it begins as gzip.
// Whatever it holds, nothing comes to be beside the folder.
#include "worker/package/unpack.h"

#include <stdlib.h>

#include <string>

#include "common/base/file.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::worker::package {
namespace {

// A folder in memory where there is one: it is made and removed each time.
class Top {
 public:
  Top() {
    for (std::string name : {"/dev/shm/lockstep-fuzz-unpack-XXXXXX",
                             "/tmp/lockstep-fuzz-unpack-XXXXXX"}) {
      if (mkdtemp(name.data()) == nullptr) continue;
      path_ = name;
      return;
    }
    fuzz::Require(false, "there is a temporary folder");
  }
  ~Top() { (void)RealFileSystem()->RemoveAll(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void Unpack(std::string_view bytes, bool gzipped) {
  static const Top top;
  const std::string inside = JoinPath(top.path(), "inside");
  FileSystem* const files = RealFileSystem();
  fuzz::Require(files->MakeDirs(inside).ok(), "the folder can be made");
  UnpackOptions options;
  options.max_bytes = 1 << 20;
  options.max_entries = 200;
  Cancellation cancel;
  auto source = MakeByteSource(bytes);
  if (gzipped) source = *MakeGunzip(std::move(source));
  const Status status = UnpackTar(source.get(), inside, options, &cancel);
  fuzz::Require(status.ok() || !status.message().empty(), "a refusal says why");
  fuzz::Require(files->List(top.path())->size() == 1, "all is inside");
  fuzz::Require(files->RemoveAll(inside).ok(), "it can be removed");
}

}  // namespace
}  // namespace lockstep::worker::package

LOCKSTEP_FUZZ_TARGET(unpack)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::package;
  const std::string_view bytes = fuzz::View(data, size);
  Unpack(bytes, /*gzipped=*/false);
  if (bytes.substr(0, 2) == "\x1f\x8b") Unpack(bytes, /*gzipped=*/true);
  for (const size_t depth : {size_t{0}, size_t{2}}) {
    (void)CheckLinkTarget(bytes, depth);
  }
  if (const auto parts = SplitEntryName(bytes); parts.ok()) {
    for (const std::string& part : *parts) {
      fuzz::Require(!part.empty() && part != "." && part != ".." &&
                        part.find('/') == part.npos,
                    "a part is a plain name");
    }
  }
  return 0;
}
