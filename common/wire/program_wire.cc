// What a program brings and needs: containers, machine types, packages,
// runtimes, and how its tasks got ready.
#include <algorithm>
#include <utility>

#include "common/model/image_name.h"
#include "common/model/names.h"
#include "common/wire/field_checker.h"
#include "common/wire/job_wire.h"
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

}  // namespace

bool IsPackageDigest(std::string_view digest) {
  constexpr std::string_view kPrefix = "sha256:";
  return digest.size() == kPrefix.size() + 64 &&
         digest.substr(0, kPrefix.size()) == kPrefix &&
         std::all_of(digest.begin() + kPrefix.size(), digest.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

v1::Container ToProto(const Container& value) {
  v1::Container out;
  out.set_image(value.image);
  for (const std::string& arg : value.command) out.add_command(arg);
  return out;
}

StatusOr<Container> FromProto(const v1::Container& value,
                              std::string_view path) {
  FieldChecker check(path);
  check.Text("image", value.image(), 512);
  if (const Status named = CheckImageName(value.image()); !named.ok()) {
    check.Require(false, "image", Message(named));
  }
  check.Count("command", value.command_size(), kMaxCommand);
  for (const std::string& arg : value.command()) {
    check.Bytes("command", arg, kMaxArgument);
  }
  check.Require(value.command_size() == 0 || !value.command(0).empty(),
                "command", "names an empty program");
  if (!check.ok()) return check.status();
  return Container{value.image(),
                   {value.command().begin(), value.command().end()}};
}

v1::ImageContent ToProto(const ImageContent& value) {
  v1::ImageContent out;
  out.set_image(value.image);
  out.set_id(value.id);
  out.set_digest(value.digest);
  out.set_node(value.node);
  return out;
}

StatusOr<ImageContent> FromProto(const v1::ImageContent& value,
                                 std::string_view path) {
  FieldChecker check(path);
  check.Text("image", value.image(), 512);
  if (const Status named = CheckImageName(value.image()); !named.ok()) {
    check.Require(false, "image", Message(named));
  }
  for (const auto& [field, digest] :
       {std::pair("id", &value.id()), std::pair("digest", &value.digest())}) {
    check.Require(
        digest->empty() || IsPackageDigest(*digest), field,
        Quote(*digest) + " is not \"sha256:\" and 64 lower-case hex digits");
  }
  check.Text("node", value.node(), 63);
  if (!check.ok()) return check.status();
  return ImageContent{value.image(), value.id(), value.digest(), value.node()};
}

v1::Machine ToProto(const MachineType& value) {
  v1::Machine out;
  out.set_type(value.type);
  *out.mutable_nominal() = ToProto(value.nominal);
  if (value.ml_units_per_hour) {
    out.set_ml_units_per_hour(*value.ml_units_per_hour);
  }
  return out;
}

StatusOr<MachineType> FromProto(const v1::Machine& value,
                                std::string_view path) {
  FieldChecker check(path);
  MachineType out;
  check.Text("type", value.type(), 128);
  check.Take(FromProto(value.nominal(), check.At("nominal")), &out.nominal);
  check.Number("ml_units_per_hour", value.ml_units_per_hour(), 0, kMaxUnits);
  if (!check.ok()) return check.status();
  out.type = value.type();
  if (value.has_ml_units_per_hour()) {
    out.ml_units_per_hour = value.ml_units_per_hour();
  }
  return out;
}

v1::Package ToProto(const Package& value) {
  v1::Package out;
  out.set_digest(value.digest);
  out.set_bytes(value.bytes);
  out.set_format(ToProto(value.format));
  out.set_file_name(value.file_name);
  return out;
}

StatusOr<Package> FromProto(const v1::Package& value, std::string_view path) {
  FieldChecker check(path);
  Package out;
  check.Require(IsPackageDigest(value.digest()), "digest",
                Quote(value.digest()) +
                    " is not \"sha256:\" and 64 lower-case hex digits");
  check.Range("bytes", value.bytes(), 1, kMaxPackageBytes);
  check.Take(FromProto(value.format(), check.At("format")), &out.format);
  check.Require(IsFileName(value.file_name()), "file_name",
                Quote(value.file_name()) + " is no name of a file");
  if (!check.ok()) return check.status();
  out.digest = value.digest();
  out.bytes = value.bytes();
  out.file_name = value.file_name();
  return out;
}

v1::Runtime ToProto(const Runtime& value) {
  v1::Runtime out;
  out.set_name(value.name);
  out.set_python(value.python);
  out.set_allow_index(value.allow_index);
  return out;
}

StatusOr<Runtime> FromProto(const v1::Runtime& value, std::string_view path) {
  FieldChecker check(path);
  check.Text("name", value.name(), 128);
  check.Text("python", value.python(), 4095);
  check.Require(value.python().empty() || value.python()[0] != '-', "python",
                Quote(value.python()) + " is no program");
  if (!check.ok()) return check.status();
  return Runtime{value.name(), value.python(), value.allow_index()};
}

v1::TaskPreparation ToProto(const TaskPreparation& value) {
  v1::TaskPreparation out;
  for (const TimedPart& part : value.parts) {
    v1::PhaseDuration* proto = out.add_parts();
    proto->set_phase(part.part);
    *proto->mutable_duration() = ToProto(part.duration);
  }
  out.set_current(value.current);
  out.set_detail(value.detail);
  return out;
}

StatusOr<TaskPreparation> FromProto(const v1::TaskPreparation& value,
                                    std::string_view path) {
  FieldChecker check(path);
  TaskPreparation out;
  check.Count("parts", value.parts_size(), kMaxParts);
  for (int i = 0; check.ok() && i < value.parts_size(); ++i) {
    const v1::PhaseDuration& proto = value.parts(i);
    TimedPart& part = out.parts.emplace_back();
    check.Text("parts.phase", proto.phase(), 32);
    part.part = proto.phase();
    check.Take(FromProto(proto.duration(), check.At("parts", i)),
               &part.duration);
  }
  check.Text("current", value.current(), 32);
  check.Bytes("detail", value.detail(), kMaxReportText);
  if (!check.ok()) return check.status();
  out.current = value.current();
  out.detail = value.detail();
  return out;
}

v1::OutputFile ToProto(const OutputFile& value) {
  v1::OutputFile out;
  out.set_path(value.path);
  out.set_kind(value.kind);
  out.set_bytes(value.bytes);
  return out;
}

StatusOr<OutputFile> FromProto(const v1::OutputFile& value,
                               std::string_view path) {
  FieldChecker check(path);
  check.Bytes("path", value.path(), 4096);
  check.Text("kind", value.kind(), 64);
  check.Range("bytes", value.bytes(), 0, INT64_MAX);
  if (!check.ok()) return check.status();
  return OutputFile{value.path(), value.kind(), value.bytes()};
}

}  // namespace lockstep
