// What a program brings and needs: containers, machine types, packages,
// runtimes, and how its tasks got ready.
#include <algorithm>

#include "common/model/image_name.h"
#include "common/model/limits.h"
#include "common/wire/fields.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxPackageBytes = int64_t{1} << 40;
constexpr size_t kMaxCommand = 16384;
constexpr size_t kMaxParts = 16;
constexpr double kMaxUnits = 1e9;

bool IsFileName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return c == '/' || static_cast<unsigned char>(c) < 32 || c == 127;
         });
}

constexpr auto kImageName = [](FieldChecker* check, std::string_view field,
                               const std::string& name) {
  check->Text(field, name, 512);
  if (const Status named = CheckImageName(name); !named.ok()) {
    check->Require(false, field, Message(named));
  }
};
constexpr auto kDigest = Matching(
    IsPackageDigest, " is not \"sha256:\" and 64 lower-case hex digits");

}  // namespace

bool IsPackageDigest(std::string_view digest) {
  constexpr std::string_view kPrefix = "sha256:";
  return digest.size() == kPrefix.size() + 64 &&
         digest.substr(0, kPrefix.size()) == kPrefix &&
         std::all_of(digest.begin() + kPrefix.size(), digest.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

LOCKSTEP_FIELDS(Container, v1::Container) {
  LOCKSTEP_FIELD(image, kImageName);
  LOCKSTEP_FIELD(command, AtMost(kMaxCommand), Each(Bytes(kMaxArgument)));
  v.Rule([](Container* container, FieldChecker* check) {
    check->Require(container->command.empty() || !container->command[0].empty(),
                   "command", "names an empty program");
  });
}

LOCKSTEP_FIELDS(ImageContent, v1::ImageContent) {
  LOCKSTEP_FIELD(image, kImageName);
  LOCKSTEP_FIELD(id, EmptyOr(kDigest));
  LOCKSTEP_FIELD(digest, EmptyOr(kDigest));
  LOCKSTEP_FIELD(node, Text(63));
}

LOCKSTEP_FIELDS(MachineType, v1::Machine) {
  LOCKSTEP_FIELD(type, Text(128));
  LOCKSTEP_FIELD(nominal);
  LOCKSTEP_FIELD(ml_units_per_hour, Number(0, kMaxUnits));
}

LOCKSTEP_FIELDS(Package, v1::Package) {
  LOCKSTEP_FIELD(digest, kDigest);
  LOCKSTEP_FIELD(bytes, Range(1, kMaxPackageBytes));
  LOCKSTEP_FIELD(format);
  LOCKSTEP_FIELD(file_name, Matching(IsFileName, " is not a file name"));
}

LOCKSTEP_FIELDS(Runtime, v1::Runtime) {
  LOCKSTEP_FIELD(name, Text(128));
  LOCKSTEP_FIELD(
      python, Text(4095),
      Matching([](std::string_view text) { return !text.starts_with('-'); },
               " is not a program name"));
  LOCKSTEP_FIELD(allow_index);
}

LOCKSTEP_FIELDS(TimedPart, v1::PhaseDuration) {
  LOCKSTEP_FIELD_AS(part, phase, Text(32));
  LOCKSTEP_FIELD(duration);
}

LOCKSTEP_FIELDS(TaskPreparation, v1::TaskPreparation) {
  LOCKSTEP_FIELD(parts, AtMost(kMaxParts));
  LOCKSTEP_FIELD(current, Text(32));
  LOCKSTEP_FIELD(detail, Bytes(kMaxReportText));
}

LOCKSTEP_FIELDS(OutputFile, v1::OutputFile) {
  LOCKSTEP_FIELD(path, Bytes(kMaxReportPath));
  LOCKSTEP_FIELD(kind, Text(64));
  LOCKSTEP_FIELD(bytes, kCounter);
}

}  // namespace lockstep
